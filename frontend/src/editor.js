// A text area with data-editor="json|yaml|python" becomes an editor; what is in it is sent with its form all the same.
import { defaultKeymap, history, historyKeymap, indentWithTab } from "@codemirror/commands";
import { json } from "@codemirror/lang-json";
import { python } from "@codemirror/lang-python";
import { yaml } from "@codemirror/lang-yaml";
import { bracketMatching, defaultHighlightStyle, syntaxHighlighting } from "@codemirror/language";
import { EditorState } from "@codemirror/state";
import { EditorView, keymap, lineNumbers } from "@codemirror/view";

const LANGUAGES = { json, yaml, python };

export function open(fields) {
  for (const field of fields) {
    if (field.dataset.editor === "" || field.dataset.opened !== undefined) continue;
    field.dataset.opened = "";
    const language = LANGUAGES[field.dataset.editor]?.();
    const view = new EditorView({
      state: EditorState.create({
        doc: field.value,
        extensions: [
          lineNumbers(),
          history(),
          bracketMatching(),
          syntaxHighlighting(defaultHighlightStyle),
          keymap.of([...defaultKeymap, ...historyKeymap, indentWithTab]),
          EditorView.lineWrapping,
          EditorView.contentAttributes.of({ "aria-label": field.labels?.[0]?.textContent ?? field.name }),
          EditorView.editable.of(!field.readOnly),
          EditorView.updateListener.of((update) => { if (update.docChanged) field.value = update.state.doc.toString(); }),
          ...(language ? [language] : []),
        ],
      }),
    });
    view.dom.dataset.keep = "";
    field.after(view.dom);
    field.hidden = true;
  }
}
