-- The beginning of all scripts. There is one key, a hash; the answer is a list that begins with a
-- word.
local key = KEYS[1]
local time = redis.call('TIME')
local now = time[1] * 1000000 + time[2] -- microseconds, exact in a double until the year 2255
local held = redis.call('HMGET', key, 'state', 'owner', 'fence', 'fingerprint', 'attempt', 'until', 'ttl', 'taken', 'since')
local state, fence, ttl = held[1], held[3], held[7]

-- mine tells whether the latest claim is that of ARGV[1], the owner, and ARGV[2], the fence.
local mine = state and held[2] == ARGV[1] and fence == ARGV[2]

-- A repeated command changes nothing, but a WAIT after it needs a write to wait for.
local function touch()
  redis.call('PEXPIRE', key, math.max(1, redis.call('PTTL', key)))
end
