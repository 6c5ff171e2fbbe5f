"""The cache operations that must not be torn apart: Lua that Redis runs as one step each.

Keys come in through `KEYS` only and all of one round share a hash slot, so that the scripts also
run on a clustered cache. Field names of the claims hash: `closed`, `late`, `duplicate`, one
`mode:index` for every result stored, one `late-index` for every trajectory that came late, and one
`mode:index:attempt:kind:reason` for every failure.
"""

# KEYS: claims, payload, arrivals. ARGV: claim field, writer, payload, TTL in ms, arrival token, and
# the field that notes a late one; without it what is not stored is not counted.
# The writer's own claim is recognised first, so that a store repeated because its answer was lost
# is still a store, and a late one late once. What another has brought before is a duplicate also
# once the round is closed: counted as late, it would be accounted for twice.
STORE = """
local claim = redis.call('HGET', KEYS[1], ARGV[1])
if claim == ARGV[2] then return 'stored' end
local late = redis.call('HGET', KEYS[1], ARGV[6])
if late == ARGV[2] then return 'late' end
local outcome
if claim or late then
  outcome = 'duplicate'
elseif redis.call('HEXISTS', KEYS[1], 'closed') == 1 then
  outcome = 'late'
else
  outcome = 'stored'
  redis.call('HSET', KEYS[1], ARGV[1], ARGV[2])
  redis.call('SET', KEYS[2], ARGV[3], 'PX', ARGV[4])
  redis.call('RPUSH', KEYS[3], ARGV[5])
  redis.call('PEXPIRE', KEYS[3], ARGV[4])
end
if outcome ~= 'stored' and ARGV[6] ~= '' then
  redis.call('HINCRBY', KEYS[1], outcome, 1)
  if outcome == 'late' then redis.call('HSET', KEYS[1], ARGV[6], ARGV[2]) end
end
redis.call('PEXPIRE', KEYS[1], ARGV[4])
return outcome
"""

# KEYS: claims, arrivals. ARGV: claim field, arrival token, TTL in ms.
# The token is noted beside the claims, too: it can be lost with the learner it was told to.
ANNOUNCE_FAILURE = """
if redis.call('HEXISTS', KEYS[1], 'closed') == 1
  or redis.call('HEXISTS', KEYS[1], ARGV[1]) == 1 then return 0 end
redis.call('HSET', KEYS[1], ARGV[2], '')
redis.call('PEXPIRE', KEYS[1], ARGV[3])
redis.call('RPUSH', KEYS[2], ARGV[2])
redis.call('PEXPIRE', KEYS[2], ARGV[3])
return 1
"""

# KEYS: claims. ARGV: TTL in ms.
CLOSE = """
redis.call('HSET', KEYS[1], 'closed', 1)
return redis.call('PEXPIRE', KEYS[1], ARGV[1])
"""
