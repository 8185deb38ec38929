/* What a person types into the page, read as rate.py, units.py and facts.py read it.

   Owns published rates such as "3,500 tok/s" and sizes such as "70.55e9", "671e9:37e9" or
   "4.68 GB". The list of units is printed by the book (`assay.data.units`). */
(function (assay) {
  "use strict";

  const QUANTITY = new RegExp(
    String.raw`^\s*([+-]?(?:\d{1,3}(?:,\d{3})+|\d+)(?:\.\d+)?(?:[eE][+-]?\d+)?` +
    String.raw`|[+-]?\.\d+(?:[eE][+-]?\d+)?)\s*((?![\d.,_]).*?)\s*$`);
  const WORDS = [
    [/\btokens?\b/gi, "tok"],
    [/\brequests?\b/gi, "req"],
    [/\s+per\s+/gi, "/"],
    [/\/\s*(?:seconds?|sec)\b/gi, "/s"],
    [/\b(?:tps|t\/s|toks\/s)\b/gi, "tok/s"],
    [/\b(?:qps|rps)\b/gi, "req/s"],
    [/\/\s*(?:gpus?|cards?|devices?|chips?)\b/gi, "/GPU"],
    [/\/\s*(?:users?|streams?|sequences?)\b/gi, "/user"],
    [/\/\s*(?:nodes?|hosts?|servers?)\b/gi, "/node"],
  ];
  const METRICS = { tpot: "tpot", itl: "tpot", ttft: "ttft", mfu: "mfu" };
  const USE = "use tok/s, req/s, ms/tok, ms TTFT, GB/s or % MFU";

  /** Return the base unit and the factor of a printed unit. */
  function parse_unit(unit) {
    const { units } = assay.data;
    const names = Object.keys(units);
    const above = [];
    const below = [];
    let factor = 1;
    unit.split("/").forEach((atom, position) => {
      if (!Object.hasOwn(units, atom)) assay.fail(`unknown unit '${unit}'`, USE);
      const [base, scale] = units[atom];
      const [top, bottom = ""] = base.split("/");
      factor = position ? factor / scale : factor * scale;
      (position ? below : above).push(top);
      (position ? above : below).push(bottom);
    });
    for (const atom of [...below]) {
      if (above.includes(atom)) {
        above.splice(above.indexOf(atom), 1);
        below.splice(below.indexOf(atom), 1);
      }
    }
    const counts = (atom) => atom !== "" && atom !== "1";
    const rest = below.filter(counts).sort((a, b) => names.indexOf(a) - names.indexOf(b));
    return {
      base: [above.filter(counts).join("*") || "1", ...rest].join("/"),
      factor,
    };
  }

  function quantity(words) {
    const match = QUANTITY.exec(words);
    if (!match) assay.fail(`'${words.trim()}' does not begin with a number and a unit`, USE);
    const value = Number(match[1].replaceAll(",", ""));
    if (!Number.isFinite(value)) assay.fail(`'${words.trim()}' is too large a number`);
    const unit = match[2].replace(/\s*\/\s*/g, "/");
    if (!unit) assay.fail(`'${words.trim()}' has no unit`, USE);
    const { base, factor } = parse_unit(unit);
    return [value * factor, base];
  }

  /** Read a published rate. */
  function parse_rate(words) {
    let text = ` ${words.trim()} `;
    const named = /\b(TTFT|TPOT|ITL|MFU)\b/i.exec(text);
    if (named) text = text.replaceAll(named[0], " ");
    for (const [pattern, word] of WORDS) text = text.replace(pattern, word);
    const suffix = /\/(user|node|GPU)\s*$/.exec(text);
    if (suffix) text = text.slice(0, suffix.index);
    const [value, base] = quantity(text.replace(/\s*\/\s*/g, "/"));
    if (!(value > 0)) assay.fail(`'${words}' is not above 0`, "state the rate as published");
    const metric = named ? METRICS[named[0].toLowerCase()] : "";
    const per = suffix ? suffix[1] : "";
    const rate = (number, unit, kind, per_gpu) => ({ value: number, unit, metric: kind, per_gpu });
    if (base === "tok/s" && per === "user") return rate(1 / value, "s", "tpot", false);
    if (base === "s/tok" && (metric === "" || metric === "tpot")) {
      return rate(value, "s", "tpot", false);
    }
    if (base === "s" && (metric === "tpot" || metric === "ttft")) {
      return rate(value, "s", metric, false);
    }
    if (base === "1" && metric === "mfu") return rate(value, "1", "mfu", false);
    if (base === "B/s" && !metric) return rate(value, "B/s", "bandwidth", per === "GPU");
    if ((base === "tok/s" || base === "req/s") && !metric && per !== "user") {
      return rate(value, base, "throughput", per === "GPU");
    }
    if (base === "s" && !metric) {
      assay.fail(`'${words}' is a time of what?`, 'write "150 ms TTFT" or "20 ms TPOT"');
    }
    return assay.fail(`'${words}' is not a rate that can be held against hardware`, USE);
  }

  const NUMBER = String.raw`\d+(?:\.\d+)?(?:[eE]\+?\d+)?`;
  const COUNT = new RegExp(`^(${NUMBER})\\s*([KMBT]?)$`, "i");
  const SCALE = { "": 1, K: 1e3, M: 1e6, B: 1e9, T: 1e12 };

  function parameters_of(text, words) {
    const found = COUNT.exec(text.trim());
    if (!found) {
      assay.fail(`'${words}' does not say how many parameters there are`,
        "write 70.55e9, 70B, or TOTAL:ACTIVE such as 46.7e9:12.9e9");
    }
    const value = Number(found[1]) * SCALE[found[2].toUpperCase()];
    if (!(value >= 1e6 && value < 1e18)) {
      assay.fail(`'${words}' is not a size a model can have`,
        "write the parameters in full, for example 70e9 or 70B");
    }
    return value;
  }

  /** Return the limits of a model given as parameters or as bytes read per step. */
  function limits_of(text) {
    const words = text.trim();
    const bare = {
      parameters: null, active: null, kv_per_token: null, embedding: 0, head: 0, attention: 0,
      weights_read: null,
    };
    if (new RegExp(`^${NUMBER}\\s*[KMGT]i?B$`).test(words) && !COUNT.test(words)) {
      return { ...bare, weights_read: quantity(words)[0] };
    }
    const [total, ...active] = words.split(":");
    const facts = {
      ...bare,
      parameters: parameters_of(total, words),
      active: active.length ? parameters_of(active.join(":"), words) : null,
    };
    if (facts.active && facts.active > facts.parameters) {
      assay.fail("more active parameters than parameters", "check the model");
    }
    return facts;
  }

  Object.assign(assay, { parse_unit, quantity, parse_rate, limits_of });
})((globalThis.assay ??= {}));
