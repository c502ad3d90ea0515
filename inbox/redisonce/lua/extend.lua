-- ARGV: owner, fence, lease in us
if not mine or state ~= 'held' then
  return {'lost'}
end
redis.call('HSET', key, 'until', string.format('%.0f', now + ARGV[3]))
redis.call('PEXPIRE', key, math.ceil(ARGV[3] / 1000) + ttl)
return {'ok'}
