// The command palette: Ctrl K (or ⌘ K, or /) opens it; it knows every page, and asks the server for things by name.
const dialog = document.querySelector("#palette");
const PAUSE = 120;
const SVG = "http://www.w3.org/2000/svg";

if (dialog) {
  const field = dialog.querySelector("input");
  const list = dialog.querySelector("[role=listbox]");
  const nothing = dialog.querySelector(".palette-none");
  const kinds = JSON.parse(dialog.dataset.kinds);
  const pages = [...list.children];
  let asked = 0;

  document.addEventListener("keydown", (event) => {
    const typing = event.target.closest?.("input, textarea, select, [contenteditable=true]");
    const called = event.key === "k" && (event.ctrlKey || event.metaKey);
    if (called || (event.key === "/" && !typing)) {
      event.preventDefault();
      show();
    }
  });
  document.addEventListener("click", (event) => {
    if (event.target.closest("[data-palette]") && !event.ctrlKey && !event.metaKey && !event.shiftKey) {
      event.preventDefault();
      show();
    }
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
    const number = ++asked;
    const matching = pages.filter((each) => words.split(/\s+/).every((word) => each.textContent.toLowerCase().includes(word)));
    fill(matching);
    if (!words) return;
    await new Promise((done) => setTimeout(done, PAUSE));
    if (number !== asked) return;
    const answer = await fetch(`${document.documentElement.dataset.root}/find.json?q=${encodeURIComponent(words)}`);
    if (!answer.ok || number !== asked) return;
    const found = (await answer.json()).found.map(entry);
    if (number !== asked) return;
    fill([...matching, ...found]);
    nothing.hidden = list.children.length > 0;
  }

  function fill(entries) {
    const chosen = list.querySelector("[aria-selected=true] a")?.href;
    list.replaceChildren(...entries);
    nothing.hidden = true;
    entries.forEach((each, place) => { each.id = `palette-${place}`; });
    choose(entries.find((each) => each.querySelector("a").href === chosen) ?? entries[0]);
  }

  function entry(each) {
    const place = document.createElement("li");
    const link = document.createElement("a");
    const kind = document.createElement("span");
    place.role = "option";
    place.className = "palette-entry";
    link.href = document.documentElement.dataset.root + each.page;
    link.tabIndex = -1;
    kind.className = "hint";
    kind.textContent = kinds[each.kind] ?? each.kind;
    link.append(icon(each.kind === "spider" ? "spider" : `${each.kind}s`), each.name, " ", kind);
    place.append(link);
    return place;
  }

  function icon(name) {
    const drawn = document.createElementNS(SVG, "svg");
    const use = document.createElementNS(SVG, "use");
    drawn.setAttribute("class", "icon");
    drawn.setAttribute("aria-hidden", "true");
    use.setAttribute("href", `${dialog.dataset.icons}#${name}`);
    drawn.append(use);
    return drawn;
  }

  function move(step) {
    const all = [...list.children];
    const at = all.findIndex((each) => each.getAttribute("aria-selected") === "true");
    choose(all[(at + step + all.length) % all.length]);
  }

  function choose(place) {
    for (const each of list.children) each.setAttribute("aria-selected", each === place);
    field.setAttribute("aria-activedescendant", place?.id ?? "");
    place?.scrollIntoView({ block: "nearest" });
  }
}
