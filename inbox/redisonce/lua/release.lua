-- ARGV: owner, fence, and how many attempts count if that changes
if state == 'done' then
  return {'done'}
end
if not mine then
  return {'lost'}
end
if state == 'held' then
  redis.call('HDEL', key, 'until', 'taken')
  redis.call('HSET', key, 'state', 'free')
  if ARGV[3] then
    redis.call('HSET', key, 'attempt', ARGV[3])
  end
  redis.call('PEXPIRE', key, ttl)
end
return {'ok'}
