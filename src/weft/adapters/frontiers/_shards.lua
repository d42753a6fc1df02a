-- Walk over the addresses of a crawl, shard by shard. A: crawl, first (a shard), state, host, and either limit (list
-- them, each shard whole and in no order) or requeue (put them back in line). Answers: where to go on, or -1; them.

local crawl = A.crawl
local SEEN = 5000 -- records in one script, so that others are not kept waiting

local function is_wanted(record)
  if A.state ~= '' and string.sub(record, 1, 1) ~= A.state then
    return false
  end
  if A.host == '' then
    return true
  end
  local _, _, _, host = struct.unpack('>c1ddHc0', record)
  return host == A.host
end

local function requeue(key, record)
  local _, _, rank, host, _, visit, address, at = struct.unpack(HEAD, record)
  local again = fresh('q', 0, rank, host, UNSEEN, visit, address, string.sub(record, at))
  redis.call('HSET', place(crawl, key), key, again)
  queue(crawl, host, key, rank, 0)
  count(crawl, host, A.state, -1)
  count(crawl, host, 'q', 1)
  redis.call('ZADD', P .. 'r:' .. crawl, 'LT', now, host)
end

local found, seen, at = {}, 0, A.first
while at < SHARDS and seen < SEEN and (A.requeue or #found < 2 * A.limit) do
  local records = redis.call('HGETALL', P .. 'u:' .. crawl .. ':' .. at)
  seen = seen + #records / 2
  for i = 1, #records, 2 do
    if is_wanted(records[i + 1]) then
      if A.requeue then
        requeue(records[i], records[i + 1])
      end
      found[#found + 1] = records[i]
      found[#found + 1] = records[i + 1]
    end
  end
  at = at + 1
end
settle()
return {at < SHARDS and at or -1, A.requeue and #found / 2 or found}
