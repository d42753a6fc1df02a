// A text area with data-editor="json|yaml|python" becomes an editor; what is in it is sent with its form all the same.
import { defaultKeymap, history, historyKeymap, indentWithTab } from "@codemirror/commands";
import { json } from "@codemirror/lang-json";
import { python } from "@codemirror/lang-python";
import { yaml } from "@codemirror/lang-yaml";
import { bracketMatching, HighlightStyle, syntaxHighlighting } from "@codemirror/language";
import { EditorState } from "@codemirror/state";
import { EditorView, keymap, lineNumbers } from "@codemirror/view";
import { tags } from "@lezer/highlight";

const LANGUAGES = { json, yaml, python };
// Colours are variables of the page, so that light and dark are one.
const LOOK = EditorView.theme({
  ".cm-gutters": { backgroundColor: "transparent", color: "var(--tblr-secondary)", border: "0" },
  ".cm-content": { caretColor: "var(--tblr-body-color)", minHeight: "3rem", paddingInline: "0.4rem" },
  ".cm-cursor": { borderLeftColor: "var(--tblr-body-color)" },
  "&.cm-focused": { outline: "2px solid var(--tblr-primary)", outlineOffset: "-2px" },
});
const COLOURS = HighlightStyle.define([
  { tag: [tags.string, tags.special(tags.string)], color: "var(--code-text)" },
  { tag: [tags.number, tags.bool, tags.null, tags.atom], color: "var(--code-number)" },
  { tag: [tags.keyword, tags.propertyName, tags.definition(tags.propertyName)], color: "var(--code-name)" },
  { tag: tags.comment, color: "var(--tblr-secondary)", fontStyle: "italic" },
]);

// Fields of so few rows have no numbers: a lone one looks like something typed.
const FEW_ROWS = 6;

export function open(fields) {
  for (const field of fields) {
    if (field.dataset.editor === "" || field.dataset.opened !== undefined) continue;
    field.dataset.opened = "";
    const language = LANGUAGES[field.dataset.editor]?.();
    const place = document.createElement("div");
    place.className = "editor";
    place.dataset.keep = "";
    // Its styles are made by script: in a shadow they need no style element, which the page may not have.
    const root = place.attachShadow({ mode: "open" });
    new EditorView({
      parent: root,
      root,
      state: EditorState.create({
        doc: field.value,
        extensions: [
          ...(field.rows > FEW_ROWS ? [lineNumbers()] : []),
          history(),
          bracketMatching(),
          syntaxHighlighting(COLOURS),
          LOOK,
          keymap.of([...defaultKeymap, ...historyKeymap, indentWithTab]),
          EditorView.lineWrapping,
          EditorView.contentAttributes.of({ "aria-label": field.labels?.[0]?.textContent ?? field.name }),
          EditorView.editable.of(!field.readOnly),
          EditorView.updateListener.of((update) => { if (update.docChanged) field.value = update.state.doc.toString(); }),
          ...(language ? [language] : []),
        ],
      }),
    });
    field.after(place);
    field.hidden = true;
  }
}
