// Moments as the reader's own clock tells them; the server sends them in UTC and says how long ago they were.
const exact = new Intl.DateTimeFormat(document.documentElement.lang, { dateStyle: "medium", timeStyle: "long" });
const short = new Intl.DateTimeFormat(document.documentElement.lang, {
  month: "short", day: "numeric", hour: "2-digit", minute: "2-digit",
});
const ago = new Intl.RelativeTimeFormat(document.documentElement.lang, { numeric: "auto", style: "narrow" });
const SPANS = [["day", 86400], ["hour", 3600], ["minute", 60], ["second", 1]];

export function prepareTimes(times) {
  for (const each of times) {
    const at = new Date(each.dateTime);
    if (Number.isNaN(at.valueOf())) continue;
    each.title = `${exact.format(at)} · ${each.dateTime}`;
    if (each.dataset.as === "local") each.textContent = short.format(at);
    if (each.dataset.as === "ago") each.textContent = relative(at);
    if (each.dataset.as === "due") each.textContent = at > Date.now() ? relative(at) : each.dataset.late;
  }
}

function relative(at) {
  const seconds = (at - Date.now()) / 1000;
  const [unit, length] = SPANS.find(([, size]) => Math.abs(seconds) >= size) ?? SPANS.at(-1);
  return ago.format(Math.round(seconds / length), unit);
}

setInterval(() => prepareTimes([...document.querySelectorAll('time[data-as="ago"], time[data-as="due"]')]), 10_000);
