/* The page "Is this number possible?": from the form to the answer, as one types.

   Owns the form, the words of the answer, the tables and the permalink. Does not own the reckoning
   (formula.js, rate.js). Everything stays in the browser. */
(function (assay) {
  "use strict";

  const OTHER = "other";
  const START = {
    rate: "3500 tok/s", model: "llama-2-70b", gpu: "a100-sxm-80gb", gpus: "1", input: "512",
    output: "128", concurrency: "32",
  };
  // The form's names for what Python's conditions and the command line call otherwise.
  const NUMBERS = {
    gpus: "gpus", input: "inputs", output: "outputs", concurrency: "concurrency",
    tokens_per_step: "tokens_per_step", cached: "cached", kv_bits: "kv_bits", overhead: "overhead",
  };
  const GLYPHS = { impossible: "✘", depends: "◐", possible: "○" };
  const COUNTED = {
    output: "output tokens", total: "input and output tokens", requests: "requests",
  };
  const NEAR = 0.1; // how far a published model's size may be from the one asked about
  const MOST_ROWS = 8;

  const at = (name) => document.getElementById(`possible-${name}`);
  const form = at("form");

  // -- words --------------------------------------------------------------------------------------

  function number(value, digits = 4) {
    if (value === null) return "—";
    if (Number.isInteger(value) && Math.abs(value) < 1e15) return value.toLocaleString("en-US");
    if (Math.abs(value) < 1e-4) return value.toExponential(digits - 1);
    return value.toLocaleString("en-US", Math.abs(value) >= 10 ** (digits - 1)
      ? { maximumFractionDigits: 0 } : { maximumSignificantDigits: digits });
  }

  const PRINTED = { s: ["ms", 1e3], "B/s": ["GB/s", 1e-9], 1: ["% MFU", 100] };
  const MEANT = { tpot: " per token", ttft: " to the first token" };

  function measured(value, unit) {
    if (value === null) return "no limit";
    const [shown, factor] = PRINTED[unit] ?? [unit, 1];
    return `${number(value * factor)} ${shown}`;
  }

  function element(tag, attributes = {}, ...children) {
    const made = document.createElement(tag);
    for (const [name, value] of Object.entries(attributes)) made.setAttribute(name, value);
    made.append(...children);
    return made;
  }

  const listed = (words) => [...new Set(words)].join(", ");
  const cards = (n) => (n === 1 ? "one device" : `${n} devices`);

  // -- the form -----------------------------------------------------------------------------------

  function option(value, text) {
    return element("option", { value }, text);
  }

  function fill() {
    const { hardware, models, precisions } = assay.data;
    const byTitle = (a, b) => a.title.localeCompare(b.title, "en", { numeric: true });
    at("model").append(
      ...[...models].sort(byTitle).map((m) => option(m.id, m.title)),
      option(OTHER, "another: state its parameters"));
    for (const vendor of [...new Set(hardware.map((d) => d.vendor))].sort()) {
      const own = hardware.filter((d) => d.vendor === vendor).sort(byTitle);
      at("gpu").append(element("optgroup", { label: vendor },
        ...own.map((d) => option(d.id, d.title))));
    }
    at("precision").append(
      option("any", "unstated: try each"), option("int4", "4-bit weights, any"),
      ...Object.keys(precisions).map((name) => option(name, name)));
  }

  function restore(given) {
    for (const [name, value] of given) {
      const field = form.elements[name];
      if (!field) continue;
      if (field.tagName === "SELECT") {
        const known = [...field.options].some((o) => o.value === value);
        if (known) {
          field.value = value;
        } else if (name === "model") {
          field.value = OTHER;
          form.elements.size.value = value;
        }
      } else {
        field.value = value;
      }
    }
    form.querySelector("details").open = ["tokens_per_step", "cached", "kv_bits", "overhead"]
      .some((name) => form.elements[name].value !== "");
  }

  /** Return the model as it is named on the command line and in a link; empty when not needed. */
  function modelName(asked) {
    const { model, size } = form.elements;
    if (asked.model === null) return "";
    return model.value === OTHER ? size.value.trim() : model.value;
  }

  function permalink(asked) {
    const query = new URLSearchParams();
    for (const [name, value] of new FormData(form)) {
      if (name === "size" || value === "" || value === "any") continue;
      const told = name === "model" ? modelName(asked) : value;
      if (told) query.set(name, told);
    }
    return `${location.pathname.split("/").pop() || "possible.html"}?${query}`;
  }

  function command(asked) {
    const { elements } = form;
    const quoted = (value) =>
      /^[\w.:+-]+$/.test(value) ? value : `'${value.replaceAll("'", "'\\''")}'`;
    const words = ["assay possible", quoted(elements.rate.value.trim())];
    const model = modelName(asked);
    if (model) words.push("--model", quoted(model));
    words.push("--gpu", elements.gpu.value);
    for (const name of [...Object.keys(NUMBERS), "precision", "counting"]) {
      const { value } = elements[name];
      if (value === "" || value === "any") continue;
      words.push(`--${name.replaceAll("_", "-")}`, name === "overhead" ? quoted(`${value} GB`) : value);
    }
    return words.join(" ");
  }

  function read() {
    const { elements } = form;
    const rate = assay.parse_rate(elements.rate.value);
    const given = { precision: elements.precision.value, counting: elements.counting.value };
    for (const [name, condition] of Object.entries(NUMBERS)) {
      const field = elements[name];
      if (field.validity.badInput) assay.fail(`${condition}: is not a number`);
      if (field.value !== "") given[condition] = Number(field.value);
    }
    if (given.gpus !== undefined && !Number.isInteger(given.gpus)) {
      assay.fail("gpus: must be a whole number");
    }
    if (given.overhead !== undefined) given.overhead *= 1e9;
    const needless = rate.metric === "bandwidth" || rate.metric === "mfu";
    const chosen = elements.model.value;
    let model = null;
    if (!needless) {
      model = chosen === OTHER
        ? assay.limits_of(elements.size.value) : assay.data.models.find((m) => m.id === chosen);
    }
    const device = assay.data.hardware.find((d) => d.id === elements.gpu.value);
    const words = elements.rate.value.trim();
    return { words, rate, model, device, stated: assay.conditions(given) };
  }

  // -- the answer ---------------------------------------------------------------------------------

  function sentences({ words, rate, device }, answer) {
    const { readings } = answer;
    // What was typed, and what it means where that is another unit.
    const meaning = `${measured(rate.value, rate.unit)}${MEANT[rate.metric] ?? ""}`;
    const claimed = rate.unit === "s" ? `${words} (${meaning})` : words;
    const said = [];
    const time = rate.metric === "tpot" || rate.metric === "ttft";
    const best = readings.reduce((a, b) => (b.ratio < a.ratio ? b : a));
    if (answer.status === "impossible") {
      const fitting = readings.filter((r) => r.fits);
      if (fitting.length) {
        const nearest = fitting.reduce((a, b) => (b.ratio < a.ratio ? b : a));
        said.push(`No admissible reading allows ${claimed}. ` +
          `${readings.length > 1 ? "The most generous one" : "The only one"}, ` +
          `${described(nearest)}, ${time ? "needs at least" : "ends at"} ` +
          `${measured(nearest.ceiling, rate.unit)}${MEANT[rate.metric] ?? ""}: the claim is ${number(nearest.ratio, 3)} ` +
          `times beyond it, limited by ${nearest.limited_by}.`);
      } else {
        said.push(`No admissible reading allows ${claimed}: the model does not fit on ` +
          `${cards(best.gpus)} of the kind ${device.title}.`);
      }
    } else if (answer.status === "depends") {
      const open = readings.filter((r) => r.possible);
      said.push(`${open.length} of ${readings.length} readings allow ${claimed}.`);
    } else {
      said.push(`Every reading allows ${claimed}. That does not show that it is true.`);
    }
    const counted = [...new Set(readings.map((r) => r.counting))].filter(Boolean);
    if (answer.status === "depends" || counted.length > 1) {
      for (const counting of counted) said.push(byCounting(readings, counting));
    }
    said.push(...needed(answer, device));
    return said;
  }

  function described(reading) {
    const parts = [
      reading.precision, reading.counting && `counting ${COUNTED[reading.counting]}`,
      `on ${cards(reading.gpus)}`,
    ];
    return parts.filter(Boolean).join(", ");
  }

  function byCounting(readings, counting) {
    const own = readings.filter((r) => r.counting === counting);
    const open = own.filter((r) => r.possible);
    const words = `Counting ${COUNTED[counting]}: `;
    if (!open.length) return `${words}impossible in every precision.`;
    if (open.length === own.length) return `${words}possible in every precision.`;
    const shut = listed(own.map((r) => r.precision)
      .filter((p) => !open.some((r) => r.precision === p)));
    return `${words}possible in ${listed(open.map((r) => r.precision))}` +
      (shut ? `; impossible in ${shut}.` : ", on enough devices.");
  }

  function needed(answer, device) {
    const said = [];
    for (const [counting, devices] of Object.entries(answer.needs.devices_by_counting ?? {})) {
      const own = answer.readings.filter((r) => r.counting === counting);
      if (own.some((r) => r.possible)) continue;
      said.push(devices === null
        ? `Counting ${COUNTED[counting]}, no number of devices is enough.`
        : `Counting ${COUNTED[counting]}, it takes at least ${cards(devices)} of the kind ` +
          `${device.title}.`);
    }
    if (answer.needs.tokens_per_step) {
      said.push("Speculative decoding with at least " +
        `${number(answer.needs.tokens_per_step)} tokens per step would allow it.`);
    }
    return said;
  }

  function show(asked, answer) {
    const result = at("result");
    result.dataset.status = answer.status;
    delete result.dataset.stale;
    result.hidden = false;
    at("answer").replaceChildren(
      element("p", { class: "possible-word" }, `${GLYPHS[answer.status]} ${answer.status}`),
      ...sentences(asked, answer).map((text) => element("p", {}, text)));
    at("readings").replaceChildren(element("h3", {}, "Every reading"), readingsTable(asked, answer));
    const notes = [
      ["Take note", answer.warnings],
      ["Not stated, so taken in favour of the claim", answer.unstated],
    ].filter(([, lines]) => lines.length);
    at("notes").replaceChildren(...notes.flatMap(([title, lines]) => [
      element("h3", {}, title),
      element("ul", {}, ...lines.map((line) => element("li", {}, sentence(line)))),
    ]));
    at("beside").replaceChildren(...beside(asked));
    at("command").textContent = command(asked);
    const link = permalink(asked);
    at("permalink").href = link;
    at("copied").textContent = "";
    history.replaceState(null, "", link);
  }

  const sentence = (line) => `${line[0].toUpperCase()}${line.slice(1)}.`;

  function table(caption, heads, rows) {
    const numeric = new Set(heads.filter(([, right]) => right).map(([name]) => name));
    const head = element("tr", {}, ...heads.map(([name]) => element(
      "th", { scope: "col", ...(numeric.has(name) && { class: "number" }) }, name)));
    return element("div", { class: "possible-scroll" }, element("table", {},
      element("caption", {}, caption), element("thead", {}, head),
      element("tbody", {}, ...rows)));
  }

  function cell(label, content, kind = "") {
    return element("td", { "data-label": label, ...(kind && { class: kind }) }, content);
  }

  function readingsTable({ rate }, answer) {
    const limit = rate.unit === "s" ? "at least" : "at most";
    const rows = answer.readings.map((r) => element("tr", { "data-possible": r.possible },
      element("th", { scope: "row" }, r.precision ?? "any"),
      cell("counting", r.counting ?? "—"),
      cell("devices", number(r.gpus), "number"),
      cell("in flight", r.batch === null ? "—" : number(r.batch), "number"),
      cell("fits", r.fits ? "yes" : "no"),
      cell(limit, measured(r.ceiling, rate.unit), "number"),
      cell("limited by", r.limited_by),
      cell("beyond it", `${number(r.ratio, 3)}×`, "number"),
      cell("possible", r.possible ? "○ yes" : "✘ no", "verdict")));
    const total = answer.readings.some((r) => r.counting === "total")
      ? " Total counts input and output tokens." : "";
    return table(
      "Above 1× the claim is beyond its limit. A model that does not fit is shown the limit it " +
        `would have.${total}`,
      [["precision"], ["counting"], ["devices", true], ["in flight", true], ["fits"], [limit, true],
        ["limited by"], ["beyond it", true], ["possible"]],
      rows);
  }

  /** Return published rates of models of this size on this device. */
  function beside({ rate, model, device }) {
    if (rate.metric !== "throughput" || !model?.parameters) return [];
    const near = assay.data.published
      .filter((row) => row.gpu === device.id &&
        Math.abs(row.parameters / model.parameters - 1) < NEAR)
      .sort((a, b) => (b.total ?? b.output) - (a.total ?? a.output));
    if (!near.length) return [];
    const rows = near.slice(0, MOST_ROWS).map((row) => element("tr", {},
      element("th", { scope: "row" }, row.engine || "engine unstated", source(row.source)),
      cell("precision", row.precision || "—"),
      cell("devices", number(row.gpus), "number"),
      cell("tokens in / out", `${number(row.inputs)} / ${number(row.outputs)}`, "number"),
      cell("in flight", number(row.concurrency), "number"),
      cell("output", number(row.output), "number"),
      cell("total", number(row.total), "number")));
    const which = near.length > MOST_ROWS ? `The fastest ${MOST_ROWS} of ${near.length} published` :
      "Published";
    return [
      element("h3", {}, "Measured by others"),
      table(
        `${which} rates for models of about this size on this device, in tok/s per device. ` +
          "Total counts input and output tokens.",
        [["engine and source"], ["precision"], ["devices", true], ["tokens in / out", true],
          ["in flight", true], ["output", true], ["total", true]],
        rows),
    ];
  }

  function source(id) {
    const { title, url } = assay.data.sources[id];
    return element("small", {}, url ? element("a", { href: url }, title) : title);
  }

  // -- as one types -------------------------------------------------------------------------------

  function update() {
    const { elements } = form;
    at("size-field").hidden = elements.model.value !== OTHER;
    const error = at("error");
    for (const field of elements) field.removeAttribute("aria-invalid");
    try {
      const asked = read();
      const answer = assay.possible(asked.rate, asked.model, asked.device, asked.stated);
      error.hidden = true;
      error.textContent = "";
      show(asked, answer);
    } catch (problem) {
      if (!(problem instanceof assay.InputError)) throw problem;
      const text = sentence(named(problem.message));
      if (error.textContent !== text) error.textContent = text;
      error.hidden = false;
      at("result").dataset.stale = "";
    }
  }

  /** Replace a condition's name by its label, and mark its field. */
  function named(message) {
    const { elements } = form;
    for (const [name, condition] of Object.entries(NUMBERS)) {
      const field = elements[name];
      if (message.startsWith(`${condition}: `)) {
        field.setAttribute("aria-invalid", "true");
        return message.replace(condition, field.labels[0].textContent);
      }
    }
    if (message.startsWith("counting")) elements.counting.setAttribute("aria-invalid", "true");
    else if (/parameters|size a model/.test(message)) elements.size.setAttribute("aria-invalid", "true");
    else elements.rate.setAttribute("aria-invalid", "true");
    return message;
  }

  async function copy() {
    const link = at("permalink").href;
    try {
      await navigator.clipboard.writeText(link);
      at("copied").textContent = "Copied.";
    } catch {
      at("copied").textContent = "The browser did not allow it; copy the link beside.";
    }
  }

  assay.data = JSON.parse(at("data").textContent);
  fill();
  const asked = [...new URLSearchParams(location.search)];
  restore(asked.length ? [["model", START.model], ...asked] : Object.entries(START));
  form.hidden = false;
  let waiting;
  form.addEventListener("input", () => {
    clearTimeout(waiting);
    waiting = setTimeout(update, 150); // ms; a screen reader should not hear every digit
  });
  form.addEventListener("submit", (event) => {
    event.preventDefault();
    update();
  });
  at("copy").addEventListener("click", copy);
  update();
})((globalThis.assay ??= {}));
