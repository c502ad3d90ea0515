-- ARGV: owner, fence, and how many attempts count from now on
if state == 'done' then
  return {'done'}
end
if not mine then
  return {'lost'}
end
if state == 'held' then
  redis.call('HDEL', key, 'until', 'taken')
  redis.call('HSET', key, 'state', 'free', 'attempt', ARGV[3])
  redis.call('PEXPIRE', key, ttl)
end
return {'ok'}
