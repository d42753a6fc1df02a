// Shows how far an archive has been sent, and keeps the form as it is where it is refused: also the file that was chosen.
import { Idiomorph } from "idiomorph/dist/idiomorph.esm.js";
import { pageChanged } from "./shown.js";

const STEP_MILLISECONDS = 700;
const prepared = new WeakSet();

export function prepare(forms) {
  for (const form of forms) {
    if (prepared.has(form)) continue;
    prepared.add(form);
    form.addEventListener("submit", (event) => {
      event.preventDefault();
      send(form);
    });
  }
}

function send(form) {
  const line = form.querySelector("[data-progress]");
  const bar = line.querySelector("progress");
  const words = line.querySelector("[role=status]");
  const button = form.querySelector("button");
  const request = new XMLHttpRequest();
  const following = new AbortController();
  const ended = () => {
    following.abort();
    button.disabled = false;
  };
  line.querySelector("[data-steps]").replaceChildren();
  line.hidden = false;
  button.disabled = true;
  bar.value = 0;
  words.textContent = words.dataset.sending;
  request.upload.addEventListener("progress", (event) => {
    bar.value = event.lengthComputable ? event.loaded / event.total : 0;
  });
  request.upload.addEventListener("load", () => {
    bar.removeAttribute("value");
    words.textContent = words.dataset.checking;
    follow(line, following.signal);
  });
  request.addEventListener("load", () => {
    ended();
    show(request);
  });
  request.addEventListener("error", () => {
    ended();
    bar.value = 0;
    words.textContent = words.dataset.lost;
  });
  request.open("POST", form.action);
  request.send(new FormData(form));
}

// Shows the steps of the page on which everybody else can follow the deploy.
async function follow(line, signal) {
  const place = line.querySelector("[data-steps]");
  while (!signal.aborted) {
    try {
      const answer = await fetch(line.dataset.follow, { signal, headers: { Accept: "text/html" } });
      const page = new DOMParser().parseFromString(await answer.text(), "text/html");
      const steps = page.querySelector("main [data-steps] > ol");
      if (steps && !signal.aborted) Idiomorph.morph(place, steps.outerHTML, { morphStyle: "innerHTML" });
    } catch (problem) {
      if (!signal.aborted) console.warn(problem);
    }
    await new Promise((then) => setTimeout(then, STEP_MILLISECONDS));
  }
}

// Where it was deployed the answer is the page of versions; otherwise it is the form with what is wrong.
function show(request) {
  if (new URL(request.responseURL).pathname !== location.pathname) {
    location.assign(request.responseURL);
    return;
  }
  const page = new DOMParser().parseFromString(request.responseText, "text/html");
  Idiomorph.morph(document.querySelector("main"), page.querySelector("main").innerHTML, {
    morphStyle: "innerHTML",
    callbacks: { beforeNodeMorphed: (old) => !(old instanceof Element && old.matches("[type=file]") && keep(old, page)) },
  });
  pageChanged();
}

// A file input that is replaced forgets its file; only how it stands is taken over.
function keep(field, page) {
  const fresh = page.getElementById(field.id);
  if (!fresh) return false;
  field.classList.toggle("is-invalid", fresh.classList.contains("is-invalid"));
  for (const name of ["aria-invalid", "aria-describedby"]) {
    if (fresh.hasAttribute(name)) field.setAttribute(name, fresh.getAttribute(name));
    else field.removeAttribute(name);
  }
  return true;
}
