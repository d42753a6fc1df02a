-- Walk over the addresses of a crawl, shard by shard. A: crawl, first (a shard), state, host, limit. Answers: where to go
-- on, or -1; keys and records, each shard whole and in no order.

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

local found, seen, at = {}, 0, A.first
while at < SHARDS and seen < SEEN and #found < 2 * A.limit do
  local records = redis.call('HGETALL', P .. 'u:' .. A.crawl .. ':' .. at)
  seen = seen + #records / 2
  for i = 1, #records, 2 do
    if is_wanted(records[i + 1]) then
      found[#found + 1] = records[i]
      found[#found + 1] = records[i + 1]
    end
  end
  at = at + 1
end
return {at < SHARDS and at or -1, found}
