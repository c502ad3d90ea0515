-- ARGV: owner, fingerprint, lease in us, time to live in ms, longest lease in us, 1 to leave a stale
-- key alone
local fingerprint, lease, longest = ARGV[2], tonumber(ARGV[3]), tonumber(ARGV[5])
local attempt, taken, number = 1, 0, now
if state then
  -- Not a counter: that would begin anew after an eviction, a restart or a failover, when fences
  -- are needed.
  number = math.max(now, tonumber(fence) + 1)
  if state == 'free' then
    attempt = held[5] + 1
  else
    if held[4] ~= '' and fingerprint ~= '' and held[4] ~= fingerprint then
      return {'mismatch'}
    end
    if state == 'done' then
      local result = redis.call('HMGET', key, 'data', 'type', 'meta')
      return {'done', result[1], result[2], result[3]}
    end
    local left = held[6] - now
    if held[2] == ARGV[1] then -- the holder asks again, because its answer was lost
      number, attempt, taken = tonumber(fence), tonumber(held[5]), tonumber(held[8])
    elseif left > 0 and left <= longest then -- beyond it the clock was set back
      return {'in_progress', left}
    elseif ARGV[6] == '1' then
      return {'abandoned'}
    else
      attempt, taken = held[5] + 1, 1
    end
    if fingerprint == '' then
      fingerprint = held[4]
    end
  end
end
local since = string.format('%.0f', now)
if tonumber(attempt) > 1 and held[9] then
  since = held[9]
end
number = string.format('%.0f', number)
redis.call('HSET', key, 'state', 'held', 'owner', ARGV[1], 'fence', number, 'fingerprint', fingerprint,
  'attempt', attempt, 'until', string.format('%.0f', now + lease), 'ttl', ARGV[4], 'taken', taken, 'since', since)
redis.call('PEXPIRE', key, math.ceil(lease / 1000) + ARGV[4])
return {'fresh', number, attempt, taken, now - since}
