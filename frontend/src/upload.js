// Shows how far an archive has been sent, and keeps the form as it is where it is refused: also the file that was chosen.
import { Idiomorph } from "idiomorph/dist/idiomorph.esm.js";
import { pageChanged } from "./shown.js";

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
  const ended = () => {
    button.disabled = false;
  };
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
