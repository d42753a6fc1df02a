// The command palette: Ctrl K (or ⌘ K, or /) opens it; it knows every page, and asks the server for things by name.
const dialog = document.querySelector("#palette");

if (dialog) {
  const field = dialog.querySelector("input");
  const list = dialog.querySelector("[role=listbox]");
  const pages = [...list.children];
  let asked = 0;

  document.addEventListener("keydown", (event) => {
    const typing = event.target.closest("input, textarea, select, [contenteditable=true]");
    const called = event.key === "k" && (event.ctrlKey || event.metaKey);
    if (called || (event.key === "/" && !typing)) {
      event.preventDefault();
      show();
    }
  });
  document.addEventListener("click", (event) => {
    if (event.target.closest("[data-palette]")) show();
    if (event.target === dialog) dialog.close();
  });
  field.addEventListener("input", find);
  field.addEventListener("keydown", (event) => {
    if (event.key === "ArrowDown" || event.key === "ArrowUp") {
      event.preventDefault();
      move(event.key === "ArrowDown" ? 1 : -1);
    } else if (event.key === "Enter") {
      event.preventDefault();
      list.querySelector("[aria-selected=true] a")?.click();
    }
  });

  function show() {
    if (dialog.open) return;
    dialog.showModal();
    field.value = "";
    find();
    field.focus();
  }

  async function find() {
    const words = field.value.trim().toLowerCase();
    const matching = pages.filter((each) => words.split(/\s+/).every((word) => each.textContent.toLowerCase().includes(word)));
    list.replaceChildren(...matching);
    choose(list.firstElementChild);
    if (!words) return;
    const number = ++asked;
    const answer = await fetch(`${document.documentElement.dataset.root}/find.json?q=${encodeURIComponent(words)}`);
    if (!answer.ok || number !== asked) return;
    for (const each of (await answer.json()).found) list.append(entry(each));
    if (!list.querySelector("[aria-selected=true]")) choose(list.firstElementChild);
  }

  function entry(each) {
    const place = document.createElement("li");
    const link = document.createElement("a");
    const kind = document.createElement("span");
    place.role = "option";
    place.className = "palette-entry";
    link.href = document.documentElement.dataset.root + each.page;
    link.tabIndex = -1;
    link.textContent = each.name;
    kind.className = "text-secondary";
    kind.textContent = each.kind;
    link.append(" ", kind);
    place.append(link);
    return place;
  }

  function move(step) {
    const all = [...list.children];
    const at = all.findIndex((each) => each.getAttribute("aria-selected") === "true");
    choose(all[(at + step + all.length) % all.length]);
  }

  function choose(place) {
    for (const each of list.children) each.setAttribute("aria-selected", each === place);
    place?.scrollIntoView({ block: "nearest" });
  }
}
