-- Look at some hosts of a crawl again (their limits may have changed), or forget them. A: crawl, hosts, forget.

local crawl = A.crawl
for _, host in ipairs(A.hosts) do
  local where = P .. 'o:' .. host
  local seen = redis.call('HMGET', where, 'c', 'u', 'n')
  local is_ours = seen[1] == crawl
  if A.forget then
    if is_ours then
      redis.call('DEL', P .. 'g:' .. host)
      redis.call('HSET', where, 'c', '', 'w', '', 'u', 0, 'x', 1)
    end
    redis.call('UNLINK', of_host('l', crawl, host), of_host('t', crawl, host), of_host('n', crawl, host))
    redis.call('ZREM', P .. 'h:' .. crawl, host)
  elseif not is_ours then
    wake(crawl, host, tonumber(seen[3] or 0))
  end
end
return #A.hosts
