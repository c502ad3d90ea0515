-- ARGV: owner, fence, lease in us, time to live in ms of a key that was forgotten
if not state then -- nobody took it
  ttl = ARGV[4]
  redis.call('HSET', key, 'state', 'held', 'owner', ARGV[1], 'fence', ARGV[2], 'fingerprint', '', 'attempt', 1, 'ttl', ttl,
    'taken', 0)
elseif not mine or state ~= 'held' then
  return {'lost'}
end
redis.call('HSET', key, 'until', string.format('%.0f', now + ARGV[3]))
redis.call('PEXPIRE', key, math.ceil(ARGV[3] / 1000) + ttl)
return {'ok'}
