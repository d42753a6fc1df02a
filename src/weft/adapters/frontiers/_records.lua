-- What an address, a host and a crawl are in Redis. Every other script begins with this one.
--
--   c:<crawl>                hash   the crawl: its limits (pages, per_host), the last place in line (seq), its counts
--   u:<crawl>:<shard>        hash   key -> record of an address; the shard is the first 12 bits of the key
--   l:<crawl>:<host>         zset   addresses that may be given now, by rank
--   t:<crawl>:<host>         zset   addresses that may be given later, by when
--   n:<crawl>:<host>         hash   counts
--   h:<crawl>                zset   names of its hosts
--   r:<crawl>                zset   hosts with something queued or leased, by when it is worth looking at them
--   m:<crawl>:<f or s>       zset   addresses that failed or were skipped, by key
--   e:<crawl>                zset   hosts that are held for it, by when their leases end
--   o:<host>                 hash   f fence, c crawl that holds it, w who, u until, n not before, s state, x unclean,
--                                   b crawl that waits for it, e until when that one is waited for
--   g:<host>                 set    what was given to whoever holds it
--
-- Counts are by the first letter of a state (q l d f s), z is the size, g how many were given and not unfetched.

local P, now = ARGV[1], tonumber(ARGV[2])
local A = cmsgpack.unpack(ARGV[3])
local UNSEEN = ARGV[4] -- the verdict of what was not fetched yet

local HEAD = '>c1ddHc0Hc0Hc0Hc0' -- state, not before, rank, host, verdict, visit, address; what follows is its data
local PLACES = 1099511627776 -- of one priority
local SHARDS = 4096
local HOST_SECONDS = 2592000 -- how long the politeness of a host outlives the last who asked it

local function shard(key)
  local first, second = string.byte(key, 1, 2)
  return first * 16 + math.floor(second / 16)
end

local function place(crawl, key)
  return P .. 'u:' .. crawl .. ':' .. shard(key)
end

local function of_host(kind, crawl, host)
  return P .. kind .. ':' .. crawl .. ':' .. host
end

local function fresh(state, next_at, rank, host, verdict, visit, address, data)
  local head = struct.pack('>c1dd', state, next_at, rank)
  return head .. struct.pack('>Hc0Hc0Hc0Hc0', #host, host, #verdict, verdict, #visit, visit, #address, address) .. data
end

local tally = {}

local function count(crawl, host, field, n)
  local hosts = tally[crawl] or {}
  tally[crawl] = hosts
  local fields = hosts[host] or {}
  hosts[host] = fields
  fields[field] = (fields[field] or 0) + n
end

local function counted(crawl, host, field)
  local pending = tally[crawl] and tally[crawl][host] and tally[crawl][host][field] or 0
  return pending + tonumber(redis.call('HGET', of_host('n', crawl, host), field) or 0)
end

local function counted_in_all(crawl, field)
  local sum = tonumber(redis.call('HGET', P .. 'c:' .. crawl, field) or 0)
  for _, fields in pairs(tally[crawl] or {}) do
    sum = sum + (fields[field] or 0)
  end
  return sum
end

-- Write down what was counted; each script ends with this.
local function settle()
  for crawl, hosts in pairs(tally) do
    local sums = {}
    for host, fields in pairs(hosts) do
      for field, n in pairs(fields) do
        if n ~= 0 then
          redis.call('HINCRBY', of_host('n', crawl, host), field, n)
          sums[field] = (sums[field] or 0) + n
        end
      end
    end
    for field, n in pairs(sums) do
      if n ~= 0 then
        redis.call('HINCRBY', P .. 'c:' .. crawl, field, n)
      end
    end
  end
end

local function is_known(crawl)
  return redis.call('EXISTS', P .. 'c:' .. crawl) == 1
end

-- Stand in line: among those that may be given now, or among those that may be later.
local function queue(crawl, host, key, rank, next_at)
  if next_at <= now then
    redis.call('ZADD', of_host('l', crawl, host), rank, key)
  else
    redis.call('ZADD', of_host('t', crawl, host), next_at, key)
  end
end

-- Note when a host that nobody holds is worth looking at, for one crawl: behind those that wait already.
local function wake(crawl, host, next_at)
  local due = nil
  if redis.call('EXISTS', of_host('l', crawl, host)) == 1 then
    due = now
  else
    local first = redis.call('ZRANGE', of_host('t', crawl, host), 0, 0, 'WITHSCORES')
    due = first[2] and tonumber(first[2])
  end
  if due then
    redis.call('ZADD', P .. 'r:' .. crawl, math.max(due, next_at), host)
  else
    redis.call('ZREM', P .. 'r:' .. crawl, host)
  end
end

-- Queue what was given and did not come back.
local function put_back(crawl, host)
  local held = P .. 'g:' .. host
  if is_known(crawl) then
    for _, key in ipairs(redis.call('SMEMBERS', held)) do
      local record = redis.call('HGET', place(crawl, key), key)
      if record and string.sub(record, 1, 1) == 'l' then
        local _, _, rank = struct.unpack('>c1dd', record)
        redis.call('HSET', place(crawl, key), key, 'q' .. string.sub(record, 2))
        redis.call('ZADD', of_host('l', crawl, host), rank, key)
        count(crawl, host, 'l', -1)
        count(crawl, host, 'q', 1)
        count(crawl, host, 'g', -1)
      end
    end
  end
  redis.call('DEL', held)
end
