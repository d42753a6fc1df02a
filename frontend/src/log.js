// The log viewer: follows what a run prints, loads what is scrolled to, jumps between errors. The server searches; the
// browser holds no more than MOST lines.
import { errorIn, highlight, placed, rowsOf, showState, sizeOf } from "./log_rows.js";
import { LogStream, linesOf } from "./log_stream.js";

const MOST = 5000;
const AT_END = 24;
const NEAR = 600;
const MOST_STEPS = 64;

export function open(places) {
  for (const each of places) if (!each.viewer) each.viewer = new Viewer(each);
}

class Viewer {
  constructor(section) {
    this.section = section;
    this.told = section.dataset;
    this.root = document.documentElement.dataset.root;
    const [box, body, follow] = [".log-box", "[data-lines]", "[data-follow]"].map((each) => section.querySelector(each));
    Object.assign(this, { box, body, follow });
    this.attempt = Number(this.told.attempt);
    [this.older, this.newer] = [this.told.older, this.told.newer].map((each) => Number(each) || null);
    this.total = this.lastNumber();
    Object.assign(this, { held: [], isLoading: false, steps: 0 });
    this.isOver = !this.told.stream;
    this.isFollowing = !this.isOver && this.told.ends === "1" && !this.told.line;
    this.listen();
    this.settle();
    placed(this.box, this.body.querySelector(".log-line.current"));
    this.searchOn();
    if (this.isOver) return;
    this.stream = new LogStream(this.root + this.told.stream, this.told.place, {
      take: (piece) => this.take(piece),
      end: (told) => this.end(told),
    });
  }

  listen() {
    this.box.addEventListener("scroll", () => this.scrolled(), { passive: true });
    this.follow.addEventListener("click", () => this.setFollowing(!this.isFollowing));
    this.section.addEventListener("click", (event) => {
      const turn = event.target.closest("[data-turn]");
      const jump = event.target.closest("[data-jump]");
      if (event.ctrlKey || event.metaKey || event.shiftKey || !(turn || jump)) return;
      event.preventDefault();
      if (turn) this.load(turn.dataset.turn);
      else this.jump(jump.dataset.jump);
    });
    document.addEventListener("keydown", (event) => {
      if (event.ctrlKey || event.metaKey || event.altKey) return;
      if (event.target.closest?.("input, textarea, select") || document.querySelector("dialog[open]")) return;
      const way = { n: "next", p: "previous" }[event.key];
      if (way) this.jump(way);
      else if (event.key === "f" && !this.isOver) this.setFollowing(!this.isFollowing);
    });
  }

  // What the stream brings.
  take(piece) {
    if (piece.attempt !== this.attempt) this.begin(piece.attempt);
    if (piece.gap) this.skip(piece.lines);
    showState("running", this.told);
    this.section.querySelector("[data-size]").textContent = sizeOf(Number(this.stream.place.split(".")[1]));
    if (!piece.lines.length) return;
    this.count(piece.lines.at(-1).line);
    if (this.isFollowing) this.append(piece.lines);
    else this.hold(piece.lines);
  }

  // More was printed than can be followed: what was left out is loaded where somebody scrolls to it.
  skip(lines) {
    this.held = [];
    if (!this.isFollowing) this.newer ??= this.lastNumber();
    else if (lines.length) {
      this.body.replaceChildren();
      this.older = lines[0].line;
    }
  }

  // Another attempt has begun: its lines are numbered anew.
  begin(attempt) {
    this.attempt = attempt;
    this.held = [];
    this.older = this.newer = null;
    this.body.replaceChildren();
    for (const name of ["here", "more"]) {
      const url = new URL(this.told[name], location.href);
      url.searchParams.set("attempt", attempt);
      this.told[name] = url.pathname + url.search;
    }
  }

  hold(lines) {
    this.held.push(...lines);
    if (this.held.length > MOST) {
      this.held = [];
      this.newer ??= this.lastNumber();
    }
    this.settle();
  }

  end(told) {
    this.isOver = true;
    if (this.isFollowing) this.isFollowing = false;
    else if (this.held.length && this.newer === null) this.release();
    showState(told.state, this.told);
    this.say(told.reason ? `${this.told.over} ${told.reason}` : this.told.over);
    this.settle();
  }

  count(number) {
    if (number <= this.total) return;
    this.total = number;
    if (this.told.level === "") {
      const words = this.told.countWords.replace("{count}", number.toLocaleString("en").replaceAll(",", "\u2009"));
      this.section.querySelector("[data-total]").textContent = words;
    }
  }

  // What is on the screen.
  rows(lines) {
    const model = this.section.querySelector("[data-line-template]").content.querySelector(".log-line");
    return rowsOf(lines, model, this.root + this.told.here, this.told.cutWords);
  }

  append(lines) {
    this.section.querySelector("[data-nothing]")?.remove();
    this.body.append(...this.rows(lines.slice(-MOST)));
    this.trimTop();
    this.settle();
  }

  trimTop() {
    const tooMany = this.body.childElementCount - MOST;
    if (tooMany <= 0) return;
    for (let n = 0; n < tooMany; n++) this.body.firstElementChild.remove();
    this.older = Number(this.body.firstElementChild.dataset.line);
  }

  // The box counts from below: what is taken away or added there moves what is seen, unless that is made up for.
  steadily(change) {
    const before = this.body.offsetHeight;
    change();
    this.box.scrollTop -= this.body.offsetHeight - before;
  }

  trimEnd() {
    const tooMany = this.body.childElementCount - MOST;
    if (tooMany <= 0) return;
    this.steadily(() => {
      for (let n = 0; n < tooMany; n++) this.body.lastElementChild.remove();
    });
    this.newer = this.lastNumber();
    this.held = [];
    this.isFollowing = false;
  }

  replace(page) {
    this.section.querySelector("[data-nothing]")?.remove();
    this.body.replaceChildren(...this.rows(page.items));
    this.older = page.older;
    this.newer = page.newer;
    this.held = [];
  }

  async load(way) {
    const from = way === "older" ? this.older : this.newer;
    if (this.isLoading || from === null) return;
    this.isLoading = true;
    try {
      const page = await this.ask({ [way === "older" ? "before" : "after"]: from });
      if (way === "older") {
        this.body.prepend(...this.rows(page.items));
        this.older = page.older;
        this.trimEnd();
      } else {
        this.steadily(() => this.body.append(...this.rows(page.items)));
        this.newer = page.newer;
        if (page.newer === null) this.caughtUp(page);
        this.trimTop();
      }
      if (page.items.length) this.section.querySelector("[data-nothing]")?.remove();
    } catch {
      this.say(this.told.failed);
    }
    this.isLoading = false;
    this.settle();
    if (way === "older") this.searchOn();
  }

  // A search looks at a part of a long log; it goes on by itself until there is a screenful.
  searchOn() {
    if (!this.told.searched) return;
    const isFull = this.box.scrollHeight > this.box.clientHeight;
    this.say(this.older === null || isFull ? "" : this.told.searched.replace("{line}", this.older));
    if (this.older !== null && !isFull && this.steps++ < MOST_STEPS) this.load("older");
    if (this.older === null) this.section.querySelector("[data-nothing] .empty-subtitle")?.replaceChildren(this.told.none);
  }

  // The end was loaded; what the stream brought meanwhile is part of it.
  caughtUp(page) {
    const last = page.items.at(-1)?.line ?? this.lastNumber();
    this.held = this.held.filter((each) => each.line > last);
  }

  ask(query) {
    return linesOf(this.root + this.told.more, query);
  }

  // Following.
  scrolled() {
    const isAtEnd = this.box.scrollTop > -AT_END;
    const fromTop = this.body.offsetHeight + this.box.scrollTop - this.box.clientHeight;
    if (fromTop < NEAR && this.older !== null) this.load("older");
    if (this.box.scrollTop > -NEAR && this.newer !== null) this.load("newer");
    if (this.isOver || isAtEnd === this.isFollowing) return;
    if (!isAtEnd) this.isFollowing = false;
    else if (this.newer === null) this.release();
    this.settle();
  }

  release() {
    const held = this.held;
    this.held = [];
    this.isFollowing = !this.isOver;
    if (held.length) this.append(held);
  }

  async setFollowing(wanted) {
    if (wanted && this.newer !== null) {
      const page = await this.ask({}).catch(() => null);
      if (page === null) return this.say(this.told.failed);
      this.replace(page);
      this.stream.goOn(page.place);
    }
    if (wanted) {
      this.release();
      this.box.scrollTop = 0;
    } else this.isFollowing = false;
    this.settle();
  }

  settle() {
    highlight(this.told.text, this.body);
    this.follow.hidden = this.isOver;
    this.follow.setAttribute("aria-pressed", String(this.isFollowing));
    const held = this.follow.querySelector("[data-held]");
    held.hidden = !this.held.length;
    held.textContent = this.told.heldWords.replace("{count}", this.held.length);
    for (const [way, from] of [["older", this.older], ["newer", this.newer]]) {
      const turn = this.section.querySelector(`[data-turn=${way}]`);
      if (turn) turn.parentElement.hidden = from === null;
    }
  }

  // Errors.
  async jump(way) {
    const found = errorIn(this.body, this.box, way) ?? (await this.errorElsewhere(way).catch(() => undefined));
    if (found === undefined) return this.say(this.told.failed);
    if (found === null) return this.say(way === "next" ? this.told.noLater : this.told.noEarlier);
    this.say("");
    this.mark(found);
  }

  async errorElsewhere(way) {
    const [name, on] = way === "next" ? ["after", "newer"] : ["before", "older"];
    let from = this[on];
    if (from === null && this.held.length && way === "next") from = this.lastNumber();
    const level = this.told.level === "CRITICAL" ? "CRITICAL" : "ERROR";
    for (let step = 0; from !== null && step < MOST_STEPS; step++) {
      const page = await this.ask({ [name]: from, level, limit: 1 });
      if (page.items.length) return this.around(page.items[0].line);
      from = page[on];
    }
    return null;
  }

  async around(line) {
    this.replace(await this.ask({ around: line }));
    return this.body.querySelector(`[data-line="${line}"]`);
  }

  mark(row) {
    this.body.querySelector(".log-line.current")?.classList.remove("current");
    row.classList.add("current");
    this.isFollowing = false;
    placed(this.box, row);
    history.replaceState(null, "", row.querySelector(".at-line").href);
    this.settle();
  }

  lastNumber() {
    return Number(this.body.lastElementChild?.dataset.line ?? 0);
  }

  say(words) {
    this.section.querySelector("[data-status]").textContent = words;
  }
}
