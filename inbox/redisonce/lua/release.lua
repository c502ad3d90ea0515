-- ARGV: owner, fence
if state == 'done' then
  return {'done'}
end
if not mine then
  return {'lost'}
end
if state == 'held' then
  redis.call('HDEL', key, 'until', 'call', 'taken')
  redis.call('HSET', key, 'state', 'free')
  redis.call('PEXPIRE', key, ttl)
end
return {'ok'}
