// Answers the cases on standard input with the page's own scripts, as JSON.
"use strict";
const { readFileSync } = require("node:fs");
const [folder] = process.argv.slice(2);
const { data, cases, rates, sizes } = JSON.parse(readFileSync(0, "utf8"));
globalThis.assay = { data };
require(`${folder}/formula.js`);
require(`${folder}/rate.js`);

function tried(compute) {
  try {
    return compute();
  } catch (error) {
    if (!(error instanceof assay.InputError)) throw error;
    return { error: error.message };
  }
}

const devices = new Map(data.hardware.map((device) => [device.id, device]));
process.stdout.write(JSON.stringify({
  cases: cases.map(({ rate, model, device, stated }) => tried(
    () => assay.possible(rate, model, devices.get(device), assay.conditions(stated)))),
  rates: rates.map((words) => tried(() => assay.parse_rate(words))),
  sizes: sizes.map((words) => tried(() => assay.limits_of(words))),
}));
