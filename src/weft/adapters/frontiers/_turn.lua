-- One exchange: what was found, then reports, then hosts that are given out. A: crawl, holder, lease, found, reports,
-- hosts, per_host, looks. Answers: new, kept, leases, when to ask again.

local LOOK_AGAIN = 5000000 -- how soon a crawl looks again at a host that another has, unless that one lets it go
local WANTED = 30000000 -- how long a host is kept for the crawl that asked for it

local crawl, holder, lease_until = A.crawl, A.holder, now + A.lease
if not is_known(crawl) then
  return redis.error_reply('LOST it does not know crawl ' .. crawl)
end
local limits = redis.call('HMGET', P .. 'c:' .. crawl, 'pages', 'per_host')
local most, most_per_host = tonumber(limits[1] or 0), tonumber(limits[2] or 0)

local function holding(host)
  local seen = redis.call('HMGET', P .. 'o:' .. host, 'f', 'c', 'u', 'n', 'b', 'e', 'x')
  return {
    fence = tonumber(seen[1] or 0), crawl = seen[2] or '', ends = tonumber(seen[3] or 0),
    next_at = tonumber(seen[4] or 0), wanted_by = seen[5] or '', wanted_until = tonumber(seen[6] or 0),
    unclean = seen[7] == '1'
  }
end

local function is_wanted_by_another(seen)
  return seen.wanted_by ~= '' and seen.wanted_by ~= crawl and seen.wanted_until > now and is_known(seen.wanted_by)
end

local function add(host, addresses)
  local new, due = 0, nil
  for _, each in ipairs(addresses) do
    local at, priority, not_before = each[1], each[2], each[3]
    local key, address, data = ARGV[at], ARGV[at + 1], ARGV[at + 2]
    local where = place(crawl, key)
    if redis.call('HEXISTS', where, key) == 0 then
      local rank = redis.call('HINCRBY', P .. 'c:' .. crawl, 'seq', 1) - priority * PLACES
      redis.call('HSET', where, key, fresh('q', not_before, rank, host, UNSEEN, '', address, data))
      queue(crawl, host, key, rank, not_before)
      new = new + 1
      due = math.min(due or not_before, not_before)
    end
  end
  if new > 0 then
    count(crawl, host, 'q', new)
    redis.call('ZADD', P .. 'h:' .. crawl, 0, host)
    local seen = holding(host)
    local at = seen.crawl == crawl and math.max(seen.ends, now) or math.max(due, seen.next_at)
    redis.call('ZADD', P .. 'r:' .. crawl, seen.crawl == crawl and 'NX' or 'LT', at, host)
  end
  return new
end

-- What may be given now that could not before.
local function promote(host)
  local later = of_host('t', crawl, host)
  local due = redis.call('ZRANGEBYSCORE', later, '-inf', now, 'LIMIT', 0, 1000)
  for _, key in ipairs(due) do
    local record = redis.call('HGET', place(crawl, key), key)
    if record then
      local _, _, rank = struct.unpack('>c1dd', record)
      redis.call('ZADD', of_host('l', crawl, host), rank, key)
    end
  end
  if #due > 0 then
    redis.call('ZREM', later, unpack(due))
  end
end

local function room(host, n)
  if most > 0 then
    n = math.min(n, most - counted_in_all(crawl, 'g'))
  end
  if most_per_host > 0 then
    n = math.min(n, most_per_host - counted(crawl, host, 'g'))
  end
  return n
end

local function give(host, wanted)
  local given, keys = {}, {}
  local n = room(host, wanted)
  if n <= 0 then
    return given
  end
  promote(host)
  local line = redis.call('ZPOPMIN', of_host('l', crawl, host), n)
  for i = 1, #line, 2 do
    local key = line[i]
    local record = redis.call('HGET', place(crawl, key), key)
    if record then
      redis.call('HSET', place(crawl, key), key, 'l' .. string.sub(record, 2))
      keys[#keys + 1] = key
      given[#given + 1] = key
      given[#given + 1] = record
    end
  end
  if #keys > 0 then
    redis.call('SADD', P .. 'g:' .. host, unpack(keys))
    count(crawl, host, 'q', -#keys)
    count(crawl, host, 'l', #keys)
    count(crawl, host, 'g', #keys)
  end
  return given
end

-- An outcome: where its parts are (key, verdict, visit), state, next_at, size. One that has come before finds the address not given.
local function take(host, outcome)
  local at, state, next_at = outcome[1], outcome[2], outcome[3]
  local key, verdict, seen = ARGV[at], ARGV[at + 1], ARGV[at + 2]
  if redis.call('SREM', P .. 'g:' .. host, key) == 0 then
    return
  end
  local where = place(crawl, key)
  local record = redis.call('HGET', where, key)
  if not record then
    return
  end
  local _, _, rank, _, _, visit, address, rest = struct.unpack(HEAD, record)
  local is_fetched = seen ~= ''
  local data = state == 'd' and '' or string.sub(record, rest)
  visit = is_fetched and seen or visit
  redis.call('HSET', where, key, fresh(state, next_at, rank, host, verdict, visit, address, data))
  if state == 'q' then
    queue(crawl, host, key, rank, next_at)
  elseif state ~= 'd' then
    redis.call('ZADD', P .. 'm:' .. crawl .. ':' .. state, 0, key)
  end
  count(crawl, host, 'l', -1)
  count(crawl, host, state, 1)
  count(crawl, host, 'z', outcome[4])
  if not is_fetched and state ~= 'd' then
    count(crawl, host, 'g', -1)
  end
end

local function release(host, next_at, own_next_at, seen)
  put_back(crawl, host)
  redis.call('HSET', P .. 'o:' .. host, 'c', '', 'w', '', 'u', 0, 'x', 0)
  redis.call('ZREM', P .. 'e:' .. crawl, host)
  wake(crawl, host, math.max(next_at, own_next_at))
  if is_wanted_by_another(seen) then
    wake(seen.wanted_by, host, next_at)
  end
end

-- A report: host, fence, outcomes, next_at, state, release, want, own_next_at.
local function keep(report)
  local host = report[1]
  local seen, where = holding(host), P .. 'o:' .. host
  if seen.crawl ~= crawl or seen.fence ~= report[2] then
    return {0}
  end
  for _, outcome in ipairs(report[3]) do
    take(host, outcome)
  end
  local next_at = math.max(seen.next_at, report[4])
  redis.call('HSET', where, 'n', next_at, 'u', lease_until)
  if report[5] ~= '' then
    redis.call('HSET', where, 's', report[5])
  end
  redis.call('EXPIRE', where, HOST_SECONDS)
  if report[6] then
    release(host, next_at, report[8], seen)
    return {1, {}}
  end
  redis.call('ZADD', P .. 'e:' .. crawl, lease_until, host)
  local given = {}
  if report[7] > 0 and not is_wanted_by_another(seen) then
    given = give(host, report[7])
  end
  if redis.call('EXISTS', P .. 'g:' .. host, of_host('l', crawl, host), of_host('t', crawl, host)) > 0 then
    redis.call('ZADD', P .. 'r:' .. crawl, lease_until, host)
  else
    redis.call('ZREM', P .. 'r:' .. crawl, host)
  end
  return {1, given}
end

local function look_again(host, at)
  redis.call('ZADD', P .. 'r:' .. crawl, at, host)
end

-- What one who is gone held is put back.
local function end_lease(host, seen)
  put_back(seen.crawl, host)
  redis.call('HSET', P .. 'o:' .. host, 'c', '', 'w', '', 'x', 1)
  redis.call('ZREM', P .. 'e:' .. seen.crawl, host)
  if is_known(seen.crawl) then
    wake(seen.crawl, host, seen.next_at)
  end
  seen.crawl, seen.unclean = '', true
end

-- Whether nobody else has a host, or a claim to it.
local function is_free(host, seen)
  if seen.crawl ~= '' and seen.ends > now then
    if seen.crawl ~= crawl and (seen.wanted_by == crawl or not is_wanted_by_another(seen)) then
      redis.call('HSET', P .. 'o:' .. host, 'b', crawl, 'e', now + WANTED)
    end
    look_again(host, seen.crawl == crawl and seen.ends or math.min(seen.ends, now + LOOK_AGAIN))
    return false
  end
  if seen.crawl ~= '' then
    end_lease(host, seen)
  end
  if is_wanted_by_another(seen) then
    look_again(host, math.min(seen.wanted_until, now + LOOK_AGAIN))
    return false
  end
  return true
end

local function lease(host)
  local seen = holding(host)
  if not is_free(host, seen) then
    return nil
  end
  if seen.next_at > now then
    look_again(host, seen.next_at)
    return nil
  end
  local given = give(host, A.per_host)
  if #given == 0 then
    if room(host, 1) <= 0 then
      redis.call('ZREM', P .. 'r:' .. crawl, host)
    else
      wake(crawl, host, seen.next_at)
    end
    return nil
  end
  local where, fence = P .. 'o:' .. host, math.max(seen.fence + 1, now)
  redis.call('HSET', where, 'f', fence, 'c', crawl, 'w', holder, 'u', lease_until, 'x', 0)
  if seen.wanted_by == crawl then
    redis.call('HDEL', where, 'b', 'e')
  end
  redis.call('EXPIRE', where, HOST_SECONDS)
  look_again(host, lease_until)
  redis.call('ZADD', P .. 'e:' .. crawl, lease_until, host)
  return {host, fence, seen.next_at, redis.call('HGET', where, 's') or '', seen.unclean and 1 or 0, given}
end

local function has_pages_left()
  return most == 0 or counted_in_all(crawl, 'g') < most
end

local function end_leases()
  for _, host in ipairs(redis.call('ZRANGEBYSCORE', P .. 'e:' .. crawl, '-inf', now, 'LIMIT', 0, A.looks)) do
    local seen = holding(host)
    if seen.crawl == crawl and seen.ends <= now then
      end_lease(host, seen)
    else
      redis.call('ZREM', P .. 'e:' .. crawl, host)
    end
  end
end

local function lease_hosts()
  local leases, looks = {}, 0
  if A.hosts > 0 then
    end_leases()
  end
  while #leases < A.hosts and looks < A.looks and has_pages_left() do
    local due = redis.call('ZRANGEBYSCORE', P .. 'r:' .. crawl, '-inf', now, 'LIMIT', 0, A.hosts - #leases)
    if #due == 0 then
      break
    end
    for _, host in ipairs(due) do
      looks = looks + 1
      leases[#leases + 1] = has_pages_left() and lease(host) or nil
    end
  end
  return leases
end

local function ask_again_at()
  local of = has_pages_left() and 'r:' or 'e:'
  local first = redis.call('ZRANGE', P .. of .. crawl, 0, 0, 'WITHSCORES')
  return first[2] and math.max(tonumber(first[2]), now) or false
end

local new, kept = 0, {}
for _, each in ipairs(A.found) do
  new = new + add(each[1], each[2])
end
for i, report in ipairs(A.reports) do
  kept[i] = keep(report)
end
local leases = lease_hosts()
local again = #leases == 0 and ask_again_at()
settle()
return {new, kept, leases, again}
