// What every page has. Parts that few pages need are fetched by those pages.
import "htmx.org";
import "idiomorph/dist/idiomorph-ext.esm.js";
import "@tabler/core/js/tabler.js";
import "./live.js";
import "./palette.js";
import "./selection.js";
import "./clipboard.js";
import "./menu.js";
import "./menus.js";
import "./filters.js";
import { prepareTimes } from "./times.js";
import { whenShown } from "./shown.js";

whenShown("time[datetime]", prepareTimes);
whenShown("[data-chart]", async (charts) => (await import("./charts.js")).draw(charts));
whenShown("[data-editor]", async (fields) => (await import("./editor.js")).open(fields));
whenShown("[data-log]", async (places) => (await import("./log.js")).open(places));
whenShown("form[data-upload]", async (forms) => (await import("./upload.js")).prepare(forms));
whenShown("[data-my-zone]", async (fields) => (await import("./zones.js")).offerZones(fields));
