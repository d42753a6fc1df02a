// The log as it grows. It is closed while nobody looks, so that many open pages do not use up the browser's connections,
// and comes back by itself, after the last piece that came.
const FIRST_WAIT = 500;
const LONGEST_WAIT = 10_000;

export class LogStream {
  constructor(address, place, { take, end }) {
    Object.assign(this, { address, place, take, end, source: null, wait: FIRST_WAIT, isOver: false, pieces: [] });
    document.addEventListener("visibilitychange", () => (document.hidden ? this.close() : this.open()));
    this.open();
  }

  open() {
    if (this.isOver || this.source || document.hidden) return;
    const url = new URL(this.address, location.href);
    url.searchParams.set("after", this.place);
    this.source = new EventSource(url);
    this.source.addEventListener("open", () => this.tell(false));
    this.source.addEventListener("error", () => this.lost());
    this.source.addEventListener("log", (event) => {
      this.place = event.lastEventId;
      this.gather(JSON.parse(event.data));
    });
    this.source.addEventListener("end", (event) => {
      this.isOver = true;
      this.close();
      this.end(JSON.parse(event.data));
    });
  }

  // What comes within a frame is shown at once.
  gather(piece) {
    const last = this.pieces.at(-1);
    if (last && last.attempt === piece.attempt && !piece.gap) last.lines.push(...piece.lines);
    else this.pieces.push(piece);
    if (!last) requestAnimationFrame(() => this.give());
  }

  give() {
    for (const piece of this.pieces.splice(0)) this.take(piece);
  }

  goOn(place) {
    this.close();
    this.place = place;
    this.open();
  }

  close() {
    this.give();
    this.source?.close();
    this.source = null;
    clearTimeout(this.timer);
  }

  // Who is not logged in any more is asked to, by the page.
  lost() {
    this.close();
    this.tell(true);
    fetch(this.address, { method: "HEAD" }).then((answer) => answer.status === 401 && location.reload(), () => {});
    this.timer = setTimeout(() => this.open(), this.wait * (0.5 + Math.random()));
    this.wait = Math.min(this.wait * 2, LONGEST_WAIT);
  }

  tell(isAway) {
    if (!isAway) this.wait = FIRST_WAIT;
    document.querySelector("#away").hidden = !isAway;
  }
}

// A page of lines that the stream has not brought.
export async function linesOf(address, query) {
  const url = new URL(address, location.href);
  for (const [name, value] of Object.entries(query)) url.searchParams.set(name, value);
  const answer = await fetch(url, { headers: { Accept: "application/json" } });
  if (!answer.ok) throw new Error(answer.statusText);
  return answer.json();
}
