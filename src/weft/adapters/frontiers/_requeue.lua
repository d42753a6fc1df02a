-- Put addresses that failed or were skipped back in line. A: crawl, state, limit; part 5 is their new verdict. Answers: how many.

local crawl, missed = A.crawl, P .. 'm:' .. A.crawl .. ':' .. A.state
local keys = redis.call('ZRANGE', missed, 0, A.limit - 1)
for _, key in ipairs(keys) do
  local record = redis.call('HGET', place(crawl, key), key)
  if record then
    local _, _, rank, host, _, visit, address, rest = struct.unpack(HEAD, record)
    local again = fresh('q', 0, rank, host, ARGV[5], visit, address, string.sub(record, rest))
    redis.call('HSET', place(crawl, key), key, again)
    queue(crawl, host, key, rank, 0)
    count(crawl, host, A.state, -1)
    count(crawl, host, 'q', 1)
    redis.call('ZADD', P .. 'r:' .. crawl, 'LT', now, host)
  end
end
if #keys > 0 then
  redis.call('ZREM', missed, unpack(keys))
end
settle()
return #keys
