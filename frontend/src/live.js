// Keeps the page as it is on the server: whenever what it shows has changed there, the new content comes and is woven
// into what is on the screen. What somebody has typed, opened or chosen stays as it is.
import { Idiomorph } from "idiomorph/dist/idiomorph.esm.js";
import { pageChanged } from "./shown.js";

const main = document.querySelector("main[data-live]");
const FIRST_WAIT = 500;
const LONGEST_WAIT = 10_000;
let wait = FIRST_WAIT;
let socket = null;
let coming = Promise.resolve();

function address() {
  const root = document.documentElement.dataset.root;
  const url = new URL(`${root}/live`, location.href);
  url.protocol = url.protocol.replace("http", "ws");
  return url;
}

function connect() {
  socket = new WebSocket(address());
  socket.addEventListener("open", () => { tell(false); show(); });
  socket.addEventListener("message", (message) => {
    coming = coming.then(() => read(message.data)).then(take).catch((problem) => console.error(problem));
  });
  socket.addEventListener("close", (event) => {
    socket = null;
    if (event.code === 4401) location.reload();
    tell(true);
    setTimeout(connect, wait * (0.5 + Math.random()));
    wait = Math.min(wait * 2, LONGEST_WAIT);
  });
}

// Which page is wanted: asked at the start, and whenever the address changes without a new page.
function show() {
  const root = document.documentElement.dataset.root;
  const page = location.pathname.slice(root.length) + location.search;
  if (socket?.readyState === WebSocket.OPEN) socket.send(JSON.stringify({ page, hidden: document.hidden }));
}

// A page comes compressed, and the same for all who see it: the token of this session is put in here.
async function read(blob) {
  const text = await new Response(blob.stream().pipeThrough(new DecompressionStream("gzip"))).json();
  const token = document.querySelector("meta[name=csrf]")?.content ?? "";
  return { ...text, main: text.main.replaceAll(text.token, token) };
}

function take(told) {
  wait = FIRST_WAIT;
  tell(false);
  const build = document.documentElement.dataset.build;
  if (told.build && told.build !== build && !isBusy()) location.reload();
  if (told.main !== undefined) weave(told);
}

function weave(told) {
  document.title = told.title;
  Idiomorph.morph(main, told.main, {
    morphStyle: "innerHTML",
    ignoreActiveValue: true,
    callbacks: { beforeNodeMorphed: keeps, beforeAttributeUpdated: keepsAttribute },
  });
  pageChanged();
}

// A part that the reader is busy with is left alone: forms that keep what was typed, what scripts have drawn.
function keeps(old) {
  return !(old instanceof Element && old.matches("[data-keep], [data-drawn]"));
}

// Whether something is folded out, or chosen, is the reader's business.
function keepsAttribute(name, node) {
  if (name === "open" && node.tagName === "DETAILS") return false;
  if (name === "checked" && node.name === "selected") return false;
  return true;
}

function isBusy() {
  return document.querySelector("dialog[open], [data-keep] :focus") !== null;
}

function tell(isAway) {
  document.querySelector("#away").hidden = !isAway;
}

if (main) {
  connect();
  document.addEventListener("visibilitychange", show);
  document.addEventListener("htmx:pushedIntoHistory", show);
  window.addEventListener("popstate", () => location.reload());
}
