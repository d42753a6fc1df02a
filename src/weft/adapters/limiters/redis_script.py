"""The limiter as a script in Redis, on the server's own clock: one call is one step that nobody sees half of.

``bucket.py`` has the same arithmetic in Python. A server that was restarted, emptied, promoted or whose clock was set
back begins a new *epoch*: what it knows may be old, so that every bucket starts empty, a while after the epoch began.
By then whoever has a place from before has noticed that it is void.
"""

from __future__ import annotations

SETTLE_SECONDS = 2.0
"""How long a new epoch grants nothing at all; then each key waits for its first token as well."""

SCRIPT = r"""
local epoch_key, rates_key, members_key = KEYS[1], KEYS[2], KEYS[3]
local op, server, given = ARGV[1], ARGV[2], ARGV[3]
local settle, silent, forget = tonumber(ARGV[4]), tonumber(ARGV[5]), tonumber(ARGV[6])
local now
if given == '' then
  local time = redis.call('TIME')
  now = tonumber(time[1]) * 1000000 + tonumber(time[2])
else
  now = tonumber(given)
end

local function text(number) return string.format('%.17g', number) end

-- An epoch: which server it was, since when, and the latest moment that was seen in it.
local known = redis.call('HMGET', epoch_key, 'server', 'began', 'seen', 'clock')
local began, clock_is_same = tonumber(known[2]), known[4] ~= 'set back'
if known[1] ~= server or now < tonumber(known[3]) - 1000000 then
  began, clock_is_same = now, known[1] ~= server
  redis.call('HSET', epoch_key, 'server', server, 'began', text(now), 'seen', text(now),
    'clock', clock_is_same and 'same' or 'set back')
elseif now > tonumber(known[3]) then
  redis.call('HSET', epoch_key, 'seen', text(now))
end
local epoch = server .. ' ' .. text(began)

-- Workers that would help themselves to a share where they hear nothing of us: that of the silent ones is left to them.
local function members()
  redis.call('ZREMRANGEBYSCORE', members_key, '-inf', text(now - forget))
  local all = redis.call('ZCARD', members_key)
  if all == 0 then return 0, 1 end
  local heard = redis.call('ZCOUNT', members_key, text(now - silent), '+inf')
  if heard == 0 then heard = 1 end
  return all, heard / all
end

local function limits(key)
  local words = redis.call('GET', rates_key .. ':' .. key)
  if not words then words = redis.call('HGET', rates_key, key) end
  if not words then words = redis.call('HGET', rates_key, string.match(key, '^[^:]*') .. ':') end
  if not words then return 1, 1, 0, '1 1 0' end
  local rate, burst, at_once = string.match(words, '(%S+) (%S+) (%S+)')
  return tonumber(rate), tonumber(burst), tonumber(at_once), words
end

local function open(place, key)
  local rate, burst, at_once, words = limits(key)
  local bucket = { rate = rate, burst = burst, words = words, place = place, later = {} }
  local kept = redis.call('HMGET', place, 'epoch', 'tokens', 'at', 'turn', 'later')
  if kept[1] == epoch then
    bucket.tokens, bucket.at, bucket.turn = tonumber(kept[2]), tonumber(kept[3]), tonumber(kept[4])
    for at, cost in string.gmatch(kept[5], '(%S+) (%S+);') do
      bucket.later[#bucket.later + 1] = { tonumber(at), tonumber(cost) }
    end
  else
    bucket.tokens, bucket.at, bucket.turn = 0, began + settle, 0
    -- Somebody may have been told to wait for long, and that still holds.
    if kept[3] and clock_is_same and tonumber(kept[3]) > bucket.at then bucket.at = tonumber(kept[3]) end
  end
  return bucket
end

local function keep(bucket)
  local later = {}
  for place, each in ipairs(bucket.later) do later[place] = text(each[1]) .. ' ' .. text(each[2]) .. ';' end
  redis.call('HSET', bucket.place, 'epoch', epoch, 'tokens', text(bucket.tokens), 'at', text(bucket.at),
    'turn', text(bucket.turn), 'later', table.concat(later))
  local full = (bucket.burst - bucket.tokens) / bucket.rate * 1000
  local ahead = (bucket.at - now) / 1000
  if ahead > 0 then full = full + ahead end
  redis.call('PEXPIRE', bucket.place, text(math.min(math.ceil(full) + 60000, 2592000000)))
end

local function room_of(bucket)
  local room = bucket.burst
  for _, each in ipairs(bucket.later) do room = room - each[2] end
  return room
end

local function advance(bucket, to, rate, room)
  if to > bucket.at then
    bucket.tokens = math.min(room, bucket.tokens + (to - bucket.at) * rate / 1e6)
    bucket.at = to
  end
end

local function refill(bucket, to, rate)
  local room = room_of(bucket)
  while bucket.later[1] and bucket.later[1][1] <= to do
    local each = table.remove(bucket.later, 1)
    advance(bucket, each[1], rate, room)
    room = room + each[2]
  end
  advance(bucket, to, rate, room)
end

local function lack(cost, tokens, rate)
  if cost > tokens then return math.ceil((cost - tokens) * 1e6 / rate) end
  return 0
end

local function next_slot(bucket, cost, rate)
  local tokens, at, room = bucket.tokens, bucket.at, room_of(bucket)
  for place, each in ipairs(bucket.later) do
    if cost <= room then
      local there = at + lack(cost, tokens, rate)
      if there <= each[1] then return { wait = there - now, tokens = tokens, at = at, passed = place - 1 } end
    end
    if each[1] > at then
      tokens = math.min(room, tokens + (each[1] - at) * rate / 1e6)
      at = each[1]
    end
    room = room + each[2]
  end
  return { wait = at + lack(cost, tokens, rate) - now, tokens = tokens, at = at, passed = #bucket.later }
end

local function take(bucket, cost, slot, at)
  bucket.tokens, bucket.at = slot.tokens - cost, slot.at
  for _ = 1, slot.passed do table.remove(bucket.later, 1) end
  bucket.turn = bucket.turn + 1
  if now + slot.wait < at then
    local place = #bucket.later + 1
    while place > 1 and (bucket.later[place - 1][1] > at
        or (bucket.later[place - 1][1] == at and bucket.later[place - 1][2] > cost)) do
      place = place - 1
    end
    table.insert(bucket.later, place, { at, cost })
  end
end

local all, share = members()

if op == 'beat' then
  if ARGV[7] ~= '' then
    redis.call('ZADD', members_key, text(now), ARGV[7])
    all = redis.call('ZCARD', members_key)
  end
  return { 1, 0, epoch, all }
end

if op == 'leave' then
  redis.call('ZREM', members_key, ARGV[7])
  return { 1, 0, epoch, all }
end

if op == 'set' then
  for place = 4, #KEYS do redis.call('SET', KEYS[place], ARGV[place * 2 - 1], 'PX', ARGV[place * 2]) end
  return { 1, 0, epoch, all }
end

if op == 'reserve' then
  local cost, longest, lead = tonumber(ARGV[7]), tonumber(ARGV[8]), tonumber(ARGV[9])
  local buckets, slots, most, words, turns = {}, {}, 0, {}, {}
  for place = 4, #KEYS do
    local bucket = open(KEYS[place], ARGV[6 + place])
    refill(bucket, now, bucket.rate * share)
    refill(bucket, now + lead, bucket.rate * share)
    local slot = next_slot(bucket, cost, bucket.rate * share)
    buckets[#buckets + 1], slots[#slots + 1] = bucket, slot
    words[#words + 1] = bucket.words
    if slot.wait > most then most = slot.wait end
  end
  local granted, again = most <= longest, most
  for place, bucket in ipairs(buckets) do
    if granted and slots[place].wait < most and cost > room_of(bucket) and bucket.later[1] then
      granted, again = false, bucket.later[1][1] - now
    end
  end
  for place, bucket in ipairs(buckets) do
    if granted then take(bucket, cost, slots[place], now + most) end
    turns[place] = bucket.turn
    keep(bucket)
  end
  return { granted and 1 or 0, granted and most or again, epoch, all, turns, words }
end

if op == 'give_back' then
  local cost = tonumber(ARGV[7])
  for place = 4, #KEYS do
    local bucket = open(KEYS[place], ARGV[4 + (place - 4) * 2 + 4])
    if bucket.turn == tonumber(ARGV[4 + (place - 4) * 2 + 5]) then
      refill(bucket, now, bucket.rate * share)
      bucket.tokens = math.min(room_of(bucket), bucket.tokens + cost)
      bucket.turn = bucket.turn + 1
      keep(bucket)
    end
  end
  return { 1, 0, epoch, all }
end

if op == 'penalise' then
  local until_at = now + tonumber(ARGV[7])
  local bucket = open(KEYS[4], ARGV[8])
  refill(bucket, now, bucket.rate * share)
  if until_at > bucket.at then
    refill(bucket, until_at, bucket.rate * share)
    bucket.tokens = math.min(1, bucket.tokens)
  end
  bucket.turn = bucket.turn + 1
  keep(bucket)
  return { 1, 0, epoch, all }
end

if op == 'hold' then
  local span, holder = tonumber(ARGV[7]), ARGV[8]
  local place, _, _, at_once = KEYS[4], limits(ARGV[9])
  if at_once == 0 then return { 1, 0, epoch, all } end
  if now < began + settle + span then return { 0, began + settle + span - now, epoch, all } end
  redis.call('ZREMRANGEBYSCORE', place, '-inf', text(now))
  if redis.call('ZSCORE', place, holder) or redis.call('ZCARD', place) < at_once then
    redis.call('ZADD', place, text(now + span), holder)
    redis.call('PEXPIRE', place, text(math.ceil(span / 1000) + 60000))
    return { 1, 0, epoch, all }
  end
  local first = redis.call('ZRANGE', place, 0, 0, 'WITHSCORES')
  return { 0, math.max(0, tonumber(first[2]) - now), epoch, all }
end

if op == 'release' then
  redis.call('ZREM', KEYS[4], ARGV[7])
  return { 1, 0, epoch, all }
end

return redis.error_reply('ERR no such step of the limiter: ' .. op)
"""
