-- ARGV: owner, fence, time to live in ms, data, content type, meta
if state == 'done' then
  if not mine then
    return {'done'}
  end
  touch()
  return {'ok'}
end
if not state then -- forgotten, so nobody took it, and what was done is a fact
  redis.call('HSET', key, 'owner', ARGV[1], 'fence', ARGV[2], 'fingerprint', '', 'attempt', 1)
elseif not mine or state ~= 'held' then
  return {'lost'}
end
redis.call('HDEL', key, 'until', 'ttl', 'taken')
redis.call('HSET', key, 'state', 'done')
for i, field in ipairs({'data', 'type', 'meta'}) do
  if ARGV[i + 3] ~= '' then
    redis.call('HSET', key, field, ARGV[i + 3])
  end
end
redis.call('PEXPIRE', key, ARGV[3])
return {'ok'}
