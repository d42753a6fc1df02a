// Lines of a log as rows of the page, in which whatever a line says is text.
export function rowsOf(lines, model, here, cutWords) {
  const rows = lines.map((each) => rowOf(each, model.cloneNode(true), `${here}&line=${each.line}`, cutWords));
  rows.forEach((row, at) => at && row.id === rows[at - 1].id && row.removeAttribute("id"));
  return rows;
}

function rowOf(line, row, here, cutWords) {
  row.dataset.line = line.line;
  row.id = `L${line.line}`;
  row.classList.toggle("plain", !line.level);
  if (line.level) row.classList.add(`level-${line.level.toLowerCase()}`);
  const number = row.querySelector(".at-line");
  number.textContent = line.line;
  number.href = `${here}#L${line.line}`;
  const at = row.querySelector(".at");
  at.textContent = (line.at ?? "").slice(11, 23);
  at.title = line.at ?? "";
  row.querySelector(".level").textContent = line.level;
  row.querySelector(".logger").textContent = line.logger;
  row.querySelector(".message").textContent = line.message;
  fold(row.querySelector("details"), line.exception);
  const cut = row.querySelector(".cut");
  cut.textContent = cutWords.replace("{count}", line.more);
  cut.href = `${here}&whole=1`;
  if (!line.more) cut.remove();
  return row;
}

function fold(details, exception) {
  if (exception === null) return details.remove();
  const last = exception.split("\n").at(-1).slice(0, 200);
  if (last) details.querySelector("summary").textContent = last;
  details.querySelector("pre").textContent = exception;
}

// What was searched for, wherever it stands in a line.
export function highlight(words, body) {
  if (!words || !window.Highlight) return;
  const wanted = words.toLowerCase();
  const ranges = [];
  for (const node of body.querySelectorAll(".message, .logger, pre")) {
    const text = node.firstChild;
    if (text) for (const at of placesOf(wanted, text.data.toLowerCase())) ranges.push(rangeOf(text, at, wanted.length));
  }
  CSS.highlights.set("found", new Highlight(...ranges));
}

function placesOf(words, text) {
  const found = [];
  for (let at = text.indexOf(words); at >= 0; at = text.indexOf(words, at + words.length)) found.push(at);
  return found;
}

function rangeOf(node, start, length) {
  const range = new Range();
  range.setStart(node, Math.min(start, node.length));
  range.setEnd(node, Math.min(start + length, node.length));
  return range;
}

// A page from a line on begins at its top. A row is shown twice, since the height of lines that were never seen is a guess.
export function placed(box, row) {
  if (box.classList.replace("from-top", "was-from-top")) box.scrollTop = -box.scrollHeight;
  row?.scrollIntoView({ block: "center" });
  requestAnimationFrame(() => row?.scrollIntoView({ block: "center" }));
}

// The next error, or the last one before: seen from the current line, else from what is on the screen.
export function errorIn(body, box, way) {
  const errors = [...body.querySelectorAll(".level-error, .level-critical")];
  const current = body.querySelector(".log-line.current");
  const { top, bottom } = box.getBoundingClientRect();
  if (way === "next") return errors.find((each) => (current ? follows(current, each) : rect(each).top >= top));
  return errors.findLast((each) => (current ? follows(each, current) : rect(each).bottom <= bottom));
}

function rect(row) {
  return row.getBoundingClientRect();
}

function follows(first, second) {
  return Boolean(first.compareDocumentPosition(second) & Node.DOCUMENT_POSITION_FOLLOWING);
}

export function sizeOf(bytes) {
  for (const [unit, length] of [["MB", 1e6], ["kB", 1e3]]) {
    if (bytes >= length) return `${Number((bytes / length).toPrecision(3))} ${unit}`;
  }
  return bytes === 1 ? "1 byte" : `${bytes} bytes`;
}

// How the run stands, in the words of the page's language.
export function showState(word, told) {
  const place = document.querySelector("[data-run-state] .state");
  if (!place || place.classList.contains(`state-${word}`)) return;
  place.className = `state state-${word}`;
  place.textContent = told[`state${word[0].toUpperCase()}${word.slice(1)}`] ?? word;
}
