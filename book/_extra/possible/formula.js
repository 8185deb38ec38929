/* The reckoning behind "Is this number possible?": assay.physics in JavaScript.

   Owns the same functions under the same names as roofline.py, precision.py, readings.py and
   possible.py, in base units (B, s, FLOP, tok). Does not own the numbers of devices, models and
   formats, which the book prints from its records (`assay.data`), or the page (page.js).
   tests/press/test_calculator.py holds every answer equal to Python's. */
(function (assay) {
  "use strict";

  // Values most generous to a claim, and how far searches go: readings.py and possible.py.
  const LEAST_KV_BITS = 4;
  const UNBOUNDED = 1e6;
  const MOST_DEVICES = 4096;
  const MOST_BATCH = 2 ** 20;
  const MOST_TOKENS_PER_STEP = 32;

  /** Bad input, said in one sentence. */
  class InputError extends Error {}

  function fail(what, fix = "") {
    throw new InputError(fix ? `${what}; ${fix}` : what);
  }

  // -- conditions.py ------------------------------------------------------------------------------

  function conditions(given) {
    const stated = {
      gpus: null, inputs: null, outputs: null, concurrency: null, precision: "any",
      counting: "any", tokens_per_step: 1, cached: 0, kv_bits: null, overhead: 0, ...given,
    };
    for (const name of ["gpus", "outputs", "concurrency", "tokens_per_step"]) {
      const value = stated[name];
      if (value !== null && !(value >= 1)) fail(`${name}: must be at least 1, not ${value}`);
    }
    if (stated.inputs !== null && stated.inputs < 0) fail("inputs: must not be negative");
    if (!(stated.cached >= 0 && stated.cached <= 1)) fail("cached: must lie between 0 and 1");
    if (!["any", "output", "total", "requests"].includes(stated.counting)) {
      fail(`unknown counting '${stated.counting}'`, "use output, total, requests or any");
    }
    return stated;
  }

  function multiplied(model) {
    return Math.max((model.active || model.parameters || 0) - model.embedding, 0);
  }

  // -- accelerator.py and precision.py ------------------------------------------------------------

  function math(device, ...formats) {
    const found = formats.filter((f) => f in device.peaks).map((f) => device.peaks[f]);
    return found.length ? Math.max(...found) : null;
  }

  function flops(precision, device) {
    return math(device, ...precision.formats) ?? math(device, "bf16", "fp16");
  }

  function admissible(device, stated) {
    const name = stated.trim().toLowerCase().replaceAll("-", "_");
    const names = device.admissible[name] ?? (name in assay.data.precisions ? [name] : null);
    if (names === null) fail(`unknown precision '${stated}'`, "use any, bf16, fp8, w4a16, ...");
    return names.map((n) => ({ name: n, ...assay.data.precisions[n] }));
  }

  // -- roofline.py --------------------------------------------------------------------------------

  function fit(memory, weights, { kv_per_token, longest, mean, overhead }) {
    const free = memory - weights - overhead;
    const fits = free >= kv_per_token * longest && free >= 0;
    const per_sequence = kv_per_token * mean;
    if (!fits) return { fits: false, free, sequences: 0 };
    if (per_sequence <= 0) return { fits: true, free, sequences: Infinity };
    return { fits: true, free, sequences: Math.max(1, Math.floor(free / per_sequence)) };
  }

  function step_floor(bandwidth, weights, { batch, kv_per_token = 0, context = 0 }) {
    return (weights + batch * kv_per_token * context) / bandwidth;
  }

  function compute_ceiling(flops, parameters, attention = 0) {
    return flops / (2 * parameters + attention);
  }

  function work(parameters, given) {
    const { inputs, outputs, head = 0, attention = 0, cached = 0, tokens_per_step = 1 } = given;
    const fresh = inputs * (1 - cached);
    const later = Math.max(0, outputs - 1);
    const pairs = (inputs * inputs - (inputs - fresh) ** 2) / 2;
    return {
      prefill_flops: 2 * (parameters - head) * fresh + 2 * head + attention * pairs,
      decode_flops: 2 * parameters * later + attention * later * (inputs + outputs / 2),
      steps: later / tokens_per_step,
      context: fresh + outputs / 2,
    };
  }

  function mixed_ceiling(request, { flops, bandwidth, weights, batch, kv_per_token = 0 }) {
    const own = request.context * kv_per_token;
    const compute = (request.prefill_flops + request.decode_flops) / flops;
    const traffic = (request.steps * (weights / batch + own)) / bandwidth;
    const prefill = Math.max(request.prefill_flops / flops, weights / bandwidth);
    const decode_compute = request.decode_flops / flops;
    const decode_traffic = (request.steps * (weights + own)) / bandwidth;
    const turn = (prefill + Math.max(decode_compute, decode_traffic)) / batch;
    const longest = Math.max(compute, traffic, turn);
    if (longest <= 0) return { requests: Infinity, limited_by: "compute" };
    if (longest === compute) return { requests: 1 / longest, limited_by: "compute" };
    if (longest === traffic || Math.max(decode_compute, decode_traffic) >= prefill) {
      return { requests: 1 / longest, limited_by: "bandwidth" };
    }
    const by_compute = request.prefill_flops / flops > weights / bandwidth;
    return { requests: 1 / longest, limited_by: by_compute ? "compute" : "bandwidth" };
  }

  function ttft_floor(request, { flops, bandwidth, weights }) {
    return Math.max(request.prefill_flops / flops, weights / bandwidth);
  }

  // -- readings.py --------------------------------------------------------------------------------

  function enumerate_readings(rate, model, device, stated) {
    const counts = stated.gpus === null ? assay.data.device_counts : [stated.gpus];
    return countings(rate, stated).flatMap((counting) =>
      counts.flatMap((n) =>
        precisions(model, device, stated).map((precision) =>
          judge(rate, model, device, stated, precision, counting, n))));
  }

  function precisions(model, device, stated) {
    if (model.weights_read !== null) {
      return [{ name: "as stated", weight_bits: 0, formats: Object.keys(device.peaks) }];
    }
    return admissible(device, stated.precision);
  }

  function countings(rate, stated) {
    const fitting = { "req/s": ["requests"], "tok/s": ["output", "total"], s: ["output"] }[rate.unit];
    if (stated.counting === "any") return fitting;
    if (!fitting.includes(stated.counting)) {
      fail(`counting ${stated.counting} does not suit a rate in ${rate.unit}`,
        `use ${fitting.join(" or ")}`);
    }
    return [stated.counting];
  }

  function shape_of(counting, inputs, outputs) {
    if (counting === "output") {
      return { inputs: inputs || 0, outputs: outputs || UNBOUNDED, kv_counts: outputs !== null };
    }
    if (counting === "total") {
      return {
        inputs: inputs === null ? UNBOUNDED : inputs, outputs: outputs || 1,
        kv_counts: inputs !== null,
      };
    }
    return { inputs: inputs || 0, outputs: outputs || 1, kv_counts: true };
  }

  function judge(rate, model, device, stated, precision, counting, gpus) {
    const memory = gpus * device.memory;
    const bandwidth = gpus * device.bandwidth;
    const peak = flops(precision, device);
    const speed = peak === null ? Infinity : gpus * peak;
    let shape = shape_of(counting, stated.inputs, stated.outputs);
    if (rate.metric === "ttft") {
      shape = { inputs: stated.inputs === null ? 1 : stated.inputs, outputs: 1, kv_counts: true };
    } else if (rate.metric === "tpot") {
      shape = { inputs: stated.inputs || 0, outputs: stated.outputs || 1, kv_counts: true };
    }
    const bits = stated.kv_bits || LEAST_KV_BITS;
    const kv = shape.kv_counts ? ((model.kv_per_token || 0) * bits) / 16 : 0;
    const parameters = multiplied(model);
    let held = model.weights_read;
    let read = model.weights_read;
    if (held === null) {
      held = ((model.parameters || 0) * precision.weight_bits) / 8;
      read = (parameters * precision.weight_bits) / 8;
    }
    const request = work(parameters, {
      inputs: shape.inputs, outputs: shape.outputs, head: model.head,
      attention: shape.kv_counts ? model.attention : 0, cached: stated.cached,
      tokens_per_step: stated.tokens_per_step,
    });
    const room = fit(memory, held, {
      kv_per_token: kv, longest: shape.inputs + shape.outputs, mean: request.context,
      overhead: gpus * stated.overhead,
    });
    const wanted = stated.concurrency === null ? Infinity : stated.concurrency;
    let batch = room.fits ? Math.min(wanted, room.sequences) : wanted;
    let ceiling, limited_by, ratio;
    if (rate.metric === "throughput") {
      const most = mixed_ceiling(request, {
        flops: speed, bandwidth, weights: read, batch, kv_per_token: kv,
      });
      const tokens = { output: shape.outputs, total: shape.inputs + shape.outputs, requests: 1 };
      ceiling = (most.requests * tokens[counting]) / (rate.per_gpu ? gpus : 1);
      limited_by = most.limited_by;
      ratio = rate.value / ceiling;
    } else {
      batch = 1;
      let traffic = read / bandwidth;
      if (rate.metric === "ttft") {
        ceiling = ttft_floor(request, { flops: speed, bandwidth, weights: read });
      } else {
        traffic = step_floor(bandwidth, read, {
          batch: 1, kv_per_token: kv, context: request.context,
        }) / stated.tokens_per_step;
        ceiling = Math.max(traffic, (2 * parameters) / speed);
      }
      limited_by = ceiling <= traffic ? "bandwidth" : "compute";
      ratio = ceiling / rate.value;
    }
    return {
      precision: precision.name, counting, gpus,
      batch: batch === Infinity ? null : batch,
      fits: room.fits,
      ceiling: ceiling === Infinity ? null : ceiling,
      limited_by: room.fits ? limited_by : "memory",
      ratio,
      possible: room.fits && ratio <= 1 + assay.data.rounding,
    };
  }

  // -- possible.py --------------------------------------------------------------------------------

  function possible(rate, model, device, stated) {
    if (rate.metric === "bandwidth" || rate.metric === "mfu") {
      return judge_device(rate, device, stated.gpus || 1);
    }
    if (model === null) fail("a rate of tokens or requests needs a model", "state the model");
    const judged = enumerate_readings(rate, model, device, stated);
    return {
      status: status(judged),
      readings: judged,
      needs: needs(rate, model, device, stated, judged),
      warnings: warnings(rate, model, device, stated, judged),
      unstated: unstated(rate, model, stated),
    };
  }

  function status(judged) {
    if (!judged.some((r) => r.possible)) return "impossible";
    return judged.every((r) => r.possible) ? "possible" : "depends";
  }

  function least(holds, most) {
    let low = 0;
    let high = 1;
    while (!holds(high)) {
      if (high >= most) return null;
      [low, high] = [high, Math.min(2 * high, most)];
    }
    while (high - low > 1) {
      const middle = Math.floor((low + high) / 2);
      [low, high] = holds(middle) ? [low, middle] : [middle, high];
    }
    return high;
  }

  function needs(rate, model, device, stated, judged) {
    const holds = (...given) => judge(rate, model, device, ...given).possible;
    const rows = [];
    const counted = countings(rate, stated);
    for (const counting of counted) {
      for (const precision of precisions(model, device, stated)) {
        const devices = least((n) => holds(stated, precision, counting, n), MOST_DEVICES);
        const at = stated.gpus || devices;
        let batch = null;
        if (rate.metric === "throughput" && at !== null) {
          batch = least(
            (b) => holds({ ...stated, concurrency: b }, precision, counting, at), MOST_BATCH);
        }
        rows.push({ counting, precision: precision.name, devices, batch });
      }
    }
    const lowest = (key, wanted) => {
      const found = rows.filter((r) => wanted.includes(r.counting) && r[key]).map((r) => r[key]);
      return found.length ? Math.min(...found) : null;
    };
    const free = enumerate_readings(
      rate, model, device, { ...stated, counting: "any", precision: "any" });
    const open = free.filter((r) => r.possible);
    return {
      devices: lowest("devices", counted),
      devices_by_counting: Object.fromEntries(counted.map((c) => [c, lowest("devices", [c])])),
      batch: lowest("batch", counted),
      counting: [...new Set(open.map((r) => r.counting))].sort(),
      precision: [...new Set(open.map((r) => r.precision))],
      tokens_per_step: speculation(rate, model, device, stated, judged),
      by_reading: rows,
    };
  }

  function speculation(rate, model, device, stated, judged) {
    if (rate.metric === "ttft" || judged.some((r) => r.possible)) return null;
    const tried = (tenths) => stated.tokens_per_step * (1 + tenths / 10);
    const tenths = least(
      (n) => enumerate_readings(rate, model, device, { ...stated, tokens_per_step: tried(n) })
        .some((r) => r.possible),
      10 * MOST_TOKENS_PER_STEP);
    return tenths === null ? null : Math.round(100 * tried(tenths)) / 100;
  }

  function warnings(rate, model, device, stated, judged) {
    const said = [];
    const throughput = rate.metric === "throughput";
    const compared = throughput && stated.concurrency === null
      ? enumerate_readings(rate, model, device, { ...stated, concurrency: 1 }) : judged;
    const ratios = compared.filter((r) => r.fits).map((r) => r.ratio);
    const highest = Math.max(...ratios);
    if (rate.metric !== "ttft" && ratios.length && highest < assay.data.suspect_share) {
      const one = stated.concurrency === null || stated.concurrency === 1;
      said.push(`suspect: ${(100 * highest).toFixed(1)} % of the ceiling at most in any reading; ` +
        (one ? "looks like a CPU path" : "looks like a card mostly idle"));
    }
    if (compared !== judged) said.push(...as_one_stream(judged, compared));
    if (judged.length && !judged.some((r) => r.fits)) {
      said.push("the weights do not fit in device memory in any reading; with part of them in " +
        "host memory a far lower rate is possible, which is not judged here");
    }
    if (throughput && !rate.per_gpu && (stated.gpus || 1) > 1) {
      const each = enumerate_readings({ ...rate, per_gpu: true }, model, device, stated);
      const beyond = each.filter((r) => !r.possible && judged.findLast(
        (w) => w.precision === r.precision && w.counting === r.counting).possible);
      if (beyond.length) {
        const worst = Math.max(...beyond.map((r) => r.ratio));
        said.push("read as a rate of the whole deployment; per device it would be up to " +
          `${worst.toFixed(1)} times beyond a ceiling`);
      }
    }
    if (stated.cached === 0 && throughput && rate.unit === "tok/s") {
      const total = judged.filter((r) => r.counting === "total" && r.fits);
      if (total.length && !total.some((r) => r.possible)) {
        said.push("input tokens served by a prefix cache cost no arithmetic; state their share " +
          "if the load repeats prompts");
      }
    }
    return said;
  }

  function as_one_stream(judged, single) {
    const pairs = judged.map((r, i) => [r, single[i]]).filter(([r]) => r.counting !== "total");
    const lost = pairs.filter(([r, s]) => r.possible && !s.possible);
    if (!lost.length) return [];
    const kept = [...new Set(pairs.filter(([, s]) => s.possible).map(([, s]) => s.precision))].sort();
    const counted = [...new Set(lost.map(([, s]) => s.counting))].sort().join(" and ");
    if (kept.length) {
      return [`counting ${counted}, one request at a time allows it only in ${kept.join(", ")}`];
    }
    return [`counting ${counted}, it is impossible for one request at a time in every format; ` +
      "a batch must be stated"];
  }

  function unstated(rate, model, stated) {
    const throughput = rate.metric === "throughput";
    return [
      [stated.gpus === null, "devices: 1, 2, 4 and 8 tried"],
      [stated.precision === "any" && model.weights_read === null,
        "precision: every format of the device tried, down to 4-bit weights"],
      [stated.counting === "any" && rate.unit === "tok/s",
        "counting: output tokens and input+output tokens tried"],
      [stated.concurrency === null && throughput,
        "concurrency: taken as the most that memory holds"],
      [stated.inputs === null, "input length: taken as the most generous to each counting"],
      [stated.outputs === null && rate.metric !== "ttft",
        "output length: taken as the most generous to each counting"],
      [model.kv_per_token === null, "KV cache: unknown for this model, taken as free"],
      [stated.kv_bits === null && model.kv_per_token !== null,
        "KV format: taken as 4 bit, the smallest that engines ship"],
      [stated.tokens_per_step === 1, "speculative decoding: none assumed"],
      [stated.cached === 0, "prefix cache: no hits assumed"],
      [stated.overhead === 0, "engine memory: none reserved"],
      [model.attention === 0, "attention arithmetic: left out"],
    ].filter(([applies]) => applies).map(([, line]) => line);
  }

  function judge_device(rate, device, gpus) {
    const mfu = rate.metric === "mfu";
    const ceiling = mfu ? 1 : device.bandwidth * (rate.per_gpu ? 1 : gpus);
    const ratio = rate.value / ceiling;
    const reading = {
      precision: null, counting: null, gpus, batch: null, fits: true, ceiling,
      limited_by: mfu ? "compute" : "bandwidth", ratio, possible: ratio <= 1 + assay.data.rounding,
    };
    const said = [];
    if (mfu) {
      said.push("an MFU against a sparse peak is half of that against the dense one; " +
        "say which peak");
    } else if (!reading.possible) {
      said.push(`${ratio.toFixed(1)} times the memory bandwidth: a cache or the clock was ` +
        "measured, not the memory");
    } else if (ratio < assay.data.suspect_share) {
      said.push(`suspect: ${(100 * ratio).toFixed(1)} % of the ceiling; too little was copied`);
    }
    const devices = mfu ? null : Math.ceil(rate.value / device.bandwidth);
    return {
      status: status([reading]), readings: [reading], needs: { devices }, warnings: said,
      unstated: [],
    };
  }

  Object.assign(assay, {
    InputError, fail, conditions, multiplied, math, flops, admissible, fit, step_floor,
    compute_ceiling, work, mixed_ceiling, ttft_floor, enumerate_readings, judge, possible,
  });
})((globalThis.assay ??= {}));
