"""The cache's atomic operations: Lua scripts, each of which Redis runs as one step.

Keys are passed only through `KEYS`, and all keys of a round share a hash slot, so the scripts also
run on a clustered cache. Fields of the claims hash: `closed`, `late`, `duplicate`, one `mode:index`
per stored result, one `late-index` per late trajectory, and one `mode:index:attempt:kind:reason`
per failure.
"""

# KEYS: claims, payload, arrivals. ARGV: claim field, writer, payload, TTL in ms, arrival token, and
# the field that marks a late result; if it is empty, results not stored are not counted.
# The writer's own claim is checked first: a store repeated after a lost answer still counts as
# stored, and a repeated late result is counted once. A result after another writer's is a duplicate
# even if the round is closed: as late it would be counted twice.
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
# The token is also stored with the claims: it can be lost with the learner that received it.
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

# KEYS: a search's queue. ARGV: TTL in ms, the field of a part's number, and the numbers.
# As one step: otherwise each part would wake up every waiting actor. A command for each part would
# cost the learner eight times as much.
QUEUE_PARTS = """
for i = 3, #ARGV do redis.call('XADD', KEYS[1], 'NOMKSTREAM', '*', ARGV[2], ARGV[i]) end
return redis.call('PEXPIRE', KEYS[1], ARGV[1])
"""
