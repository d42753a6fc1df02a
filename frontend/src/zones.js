// A field for a time zone offers the one that the reader's machine is in.
export function offerZones(fields) {
  const mine = Intl.DateTimeFormat().resolvedOptions().timeZone;
  for (const field of fields) {
    if (!mine || field.dataset.offered !== undefined) continue;
    field.dataset.offered = "";
    if ((field.value || field.placeholder) === mine) continue;
    const offer = document.createElement("button");
    offer.type = "button";
    offer.className = "btn btn-sm btn-link p-0";
    offer.textContent = field.dataset.myZone.replace("{zone}", mine);
    offer.dataset.keep = "";
    offer.addEventListener("click", () => {
      field.value = mine;
      field.dispatchEvent(new Event("input", { bubbles: true }));
      offer.remove();
    });
    field.after(offer);
  }
}
