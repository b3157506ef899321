// The compatibility explorer: looks up answers in the tables that `gpuenv matrix html` embeds.
//
// A release of a framework has plans: packages that `gpuenv solve` chose. A plan has a column of
// steps for each compute capability: [first interval of drivers, tier, reason]. Tier 0 is code for
// the device, tier 1 is PTX that the driver compiles, tier 2 is code that is not known, and -1 says
// that the plan does not run there. The reason is -1 if nothing speaks against the plan. A host is
// served if one plan runs on all of its GPUs. This script applies no rule.
"use strict";

const tables = JSON.parse(document.getElementById("tables").textContent);
const VIEWS = ["answer", "wheel", "table", "charts"];
const DEFAULTS = { framework: "torch", python: "3.12", platform: "linux-x86_64", view: "answer" };

// ---- input of the user ------------------------------------------------------------------------

/** Return the comparable form of a GPU's name, as compat.data.gpu_key does. */
function gpuKey(text) {
  const { noise_words, noise } = tables.gpus;
  const isNoise = new RegExp(`^(?:${noise})$`);
  const key = [];
  for (const word of text
    .toLowerCase()
    .split(/[^a-z0-9]+/)
    .filter(Boolean)) {
    if (word === "mig") break;
    if (!noise_words.includes(word) && !isNoise.test(word)) key.push(word);
    else if (["gb", "tb"].includes(word) && /\d$/.test(key.at(-1) ?? "")) key.pop();
  }
  return key.join("");
}

/** Return the compute capability "9.0" of "sm_90", "SM120" or "9.0"; null for a name. */
function typedCapability(text) {
  const target = /^sm_?(\d{1,2})(\d)$/i.exec(text);
  if (target) return `${Number(target[1])}.${target[2]}`;
  return /^\d+\.\d+$/.test(text) ? text : null;
}

/** Return {name, capability (a column of the tables), platform} of a typed GPU, or {error}. */
function parseGpu(text) {
  const { keys, ambiguous, platforms } = tables.gpus;
  const typed = typedCapability(text);
  if (typed) {
    const capability = tables.capabilities.indexOf(typed);
    if (capability < 0) return { error: `No known GPU has compute capability ${typed}.` };
    return { name: `sm_${typed.replace(".", "")}`, capability, platform: platformOf(capability) };
  }
  const key = gpuKey(text);
  let capability = ambiguous.includes(key) ? undefined : (keys[key] ?? keys[`quadro${key}`]);
  if (capability === undefined && /^\d/.test(key) && !ambiguous.includes(key)) {
    const known = [keys[`gtx${key}`], keys[`rtx${key}`]].filter((one) => one !== undefined);
    if (new Set(known).size === 1) capability = known[0];
  }
  if (capability === undefined) return { error: unknownGpu(text, key) };
  const platform = key in keys ? (platforms[key] ?? null) : platformOf(capability);
  return { name: text, capability, platform };
}

/** Return the platform of all GPUs of a compute capability; null if they have several. */
function platformOf(capability) {
  const { keys, platforms } = tables.gpus;
  const found = new Set();
  for (const [key, column] of Object.entries(keys)) {
    if (column === capability) found.add(platforms[key] ?? null);
  }
  return found.size === 1 ? [...found][0] : null;
}

function unknownGpu(text, key) {
  const near = tables.gpus.names.filter(([name]) => key && gpuKey(name).includes(key)).slice(0, 4);
  const names = near.map(([name]) => name).join(", ");
  return (
    `${text} is not a known GPU. ` +
    (names ? `Did you mean ${names}?` : "Type a name such as RTX 4090, or sm_89.")
  );
}

/** Return {interval} of a typed driver, or {error}. For "" it is the last interval. */
function parseDriver(text, platform) {
  const { thresholds } = tables.platforms[platform];
  if (!text) return { interval: thresholds.length + 1 };
  if (!/^\d+(\.\d+){0,3}$/.test(text)) {
    return { error: `${text} is not a driver release such as 580.65.06.` };
  }
  const release = text.split(".").map(Number);
  if (release[0] < 100) {
    return { error: `${text} looks like a CUDA version. Type a driver release, like 580.65.06.` };
  }
  const reached = thresholds.filter((threshold) => reaches(release, threshold));
  return { interval: reached.length };
}

/** Return whether a release is a threshold or newer. "580" stands for the newest 580. */
function reaches(release, threshold) {
  const floor = threshold.split(".").map(Number).slice(0, release.length);
  const difference = floor.findIndex((number, place) => number !== release[place]);
  return difference < 0 || release[difference] > floor[difference];
}

// ---- answers ----------------------------------------------------------------------------------

/** Return {tier, reason} of a plan for one compute capability and one interval of drivers. */
function stepOf(plan, capability, interval) {
  const steps = tables.columns[tables.plans[plan][capability]];
  const [, tier, reason] = steps.filter(([start]) => start <= interval).at(-1);
  return { tier, reason };
}

/** Return what the best plan of a release says about a host: {tier, reasons}, -1 if none runs. */
function verdict(release, host) {
  const verdicts = release.plans.map((plan) => {
    const steps = host.gpus.map((gpu) => ({
      gpu,
      ...stepOf(plan, gpu.capability, host.interval),
    }));
    const tiers = steps.map(({ tier }) => tier);
    const reasons = steps
      .filter(({ reason }) => reason >= 0)
      .map(({ gpu, tier, reason }) => ({ ...fill(reason, release, host, gpu), doubt: tier >= 0 }));
    // As in the answers of the solver, what excludes a GPU with its driver comes first, then what
    // excludes the release itself, its libraries, and last the doubts.
    const own = `${host.name} ${release.version}`;
    const order = ({ code, subject, doubt }) =>
      doubt ? 3 : code.startsWith("gpu-") ? 0 : subject === own ? 1 : 2;
    reasons.sort((one, other) => order(one) - order(other));
    return { tier: tiers.includes(-1) ? -1 : Math.max(...tiers), reasons };
  });
  const runs = verdicts.filter(({ tier }) => tier >= 0);
  runs.sort((one, other) => one.tier - other.tier);
  return runs[0] ?? verdicts[0];
}

/** Return a reason whose placeholders are replaced by the facts of a host. */
function fill(number, release, host, gpu) {
  const [code, ...texts] = tables.reasons[number];
  const facts = {
    gpu: gpu?.name,
    capability: gpu && tables.capabilities[gpu.capability],
    release: `${host.name} ${release.version}`,
    driver: host.driver,
    driver_cuda: tables.platforms[host.platform].cuda[host.interval] ?? "unknown",
  };
  const [subject, need, have] = texts.map((text) =>
    tables.texts[text].replace(/\{(\w+)\}/g, (_, name) => facts[name]),
  );
  return { code, doubt: false, subject, need, have };
}

/** Judge a release on a host: its tier, the reasons against it, and whether it runs. */
function judge(release, host) {
  const { tier, reasons } = verdict(release, host);
  const hasWheel = release.pythons?.includes(host.python) ?? true;
  if (!hasWheel) {
    const doubts = reasons.findIndex(({ doubt }) => doubt);
    reasons.splice(doubts < 0 ? reasons.length : doubts, 0, noWheelReason(release, host));
  }
  const isFramework = host.name in tables.platforms[host.platform].frameworks;
  // gpuenv solve weighs the doubts about a framework. Nothing shows that unknown code runs.
  const isKnown = isFramework || tier !== 2;
  return { release, tier, reasons, hasWheel, isKnown, runs: hasWheel && isKnown && tier >= 0 };
}

/** Return why a release has no plan with the interpreter of a host. */
function noWheelReason(release, host) {
  if (release.refusal !== null) return fill(release.refusal, release, host, null);
  const tag = `cp${tables.pythons[host.python].replace(".", "")}`;
  const need = `a wheel for ${tag} on ${host.platform}`;
  const subject = `${host.name} ${release.version}`;
  return { code: "no-wheel", doubt: false, subject, need, have: "none in the index data" };
}

function pythonText({ pythons }) {
  if (!pythons.length) return "a file, which no known index has";
  return `Python ${pythons.map((python) => tables.pythons[python]).join(", ")}`;
}

/** Return the releases of a name on a host in the order of the solver, each judged. */
function judgedReleases(host) {
  const { toolkits } = tables.platforms[host.platform];
  const releases = releasesOf(host);
  const versions = [...new Set(releases.map((release) => release.public))];
  const rank = ({ release, tier }) => [
    versions.indexOf(release.public),
    tier < 0 ? 3 : tier,
    toolkits[release.cuda]?.[host.interval] ?? 0,
  ];
  const judged = releases.map((release) => judge(release, host));
  return judged.sort((one, other) => compare(rank(one), rank(other)));
}

function compare(numbers, others) {
  const place = numbers.findIndex((number, index) => number !== others[index]);
  return place < 0 ? 0 : numbers[place] - others[place];
}

/** Return the releases of a framework, or of a distribution with device code, on a platform. */
function releasesOf({ name, platform }) {
  const { frameworks, libraries } = tables.platforms[platform];
  return frameworks[name]?.releases ?? libraries[name] ?? [];
}

/**
 * Return the answer for a host: {chosen, judged, refusal}.
 *
 * `chosen` is the release that `gpuenv solve` chooses, null if none runs. Among the builds of one
 * version, a build without doubts is preferred. `refusal` is the first reason if none runs.
 */
function answer(host) {
  if (!host.gpus.length) return answerWithoutGpu(host);
  const judged = judgedReleases(host);
  const first = judged.find((one) => one.runs);
  const builds = judged.filter((one) => one.runs && one.release.public === first?.release.public);
  const chosen = builds.find((one) => !one.reasons.length) ?? first ?? null;
  const best = judged.find((one) => one.hasWheel && one.isKnown) ?? judged[0];
  return { chosen, judged, refusal: chosen ? null : (best?.reasons[0] ?? null) };
}

/** Return the answer of the solver for a host without a GPU; only frameworks have one. */
function answerWithoutGpu(host) {
  const known = tables.platforms[host.platform].frameworks[host.name]?.without_gpu[host.python];
  if (known?.version) return { chosen: { release: known, reasons: [] }, judged: [], refusal: null };
  const refusal = known ? fill(known.reason, {}, host, null) : null;
  return { chosen: null, judged: [], refusal };
}

/** Return whether one plan of a release runs on all of some compute capabilities. */
function runsAt(release, capabilities, interval) {
  return release.plans.some((plan) =>
    capabilities.every((capability) => stepOf(plan, capability, interval).tier >= 0),
  );
}

/** Return the driver that a release needs on these GPUs: {from, until} by thresholds, or null. */
function driversOf(release, { gpus, platform }) {
  const { thresholds } = tables.platforms[platform];
  const capabilities = gpus.map((gpu) => gpu.capability);
  const intervals = [...thresholds.keys(), thresholds.length].filter((interval) =>
    runsAt(release, capabilities, interval),
  );
  if (!intervals.length) return null;
  const end = intervals.at(-1);
  return {
    from: intervals[0] ? driverName(thresholds[intervals[0] - 1]) : "",
    until: end && end < thresholds.length ? `R${parseInt(thresholds[end - 1], 10)}` : "",
  };
}

/** Return "R570" for the first release of a branch, and other releases unchanged. */
function driverName(threshold) {
  return threshold.endsWith(".00") ? `R${threshold.slice(0, -3)}` : threshold;
}

function driverText(drivers) {
  if (!drivers) return "";
  const texts = [];
  if (drivers.from) texts.push(`${drivers.from} or newer`);
  if (drivers.until) texts.push(`up to branch ${drivers.until}`);
  return texts.join(", ") || "any driver";
}

/** Return what would make a release run on a host: another Python, driver or GPU. */
function changes({ release, hasWheel, tier }, host) {
  const texts = hasWheel ? [] : [pythonText(release)];
  if (tier >= 0) return texts.join("; ");
  const drivers = driversOf(release, host);
  if (drivers) texts.push(`driver ${driverText(drivers)}`);
  else texts.push(...otherGpus(release, host));
  return texts.join("; ");
}

/** Return which GPUs a release needs if no driver helps. */
function otherGpus(release, host) {
  const served = host.gpus.filter((gpu) => driversOf(release, { ...host, gpus: [gpu] }));
  if (served.length) return [`only ${served.map((gpu) => gpu.name).join(", ")}`];
  const capabilities = tables.capabilities.filter((_, column) => bestOf(release, column) !== "no");
  return capabilities.length ? [`a GPU of compute capability ${capabilities.join(", ")}`] : [];
}

// ---- the choice, kept in the URL's fragment ---------------------------------------------------

/** Return the choice that a fragment names. */
function readChoice(fragment) {
  const values = new URLSearchParams(fragment.replace(/^#/, ""));
  const known = (name, options) =>
    options.includes(values.get(name)) ? values.get(name) : DEFAULTS[name];
  const platform = known("platform", Object.keys(tables.platforms));
  const names = Object.keys(tables.platforms["linux-x86_64"].frameworks).concat(
    Object.keys(tables.platforms["linux-x86_64"].libraries),
  );
  return {
    gpus: values
      .getAll("gpu")
      .map((gpu) => gpu.trim())
      .filter(Boolean),
    driver: (values.get("driver") ?? "").trim(),
    framework: known("framework", names),
    python: known("python", tables.pythons),
    platform,
    view: known("view", VIEWS),
    wheel: values.get("wheel") ?? "",
  };
}

/** Return the fragment that names a choice, without the defaults. */
function fragmentOf(choice) {
  const values = new URLSearchParams();
  for (const gpu of choice.gpus) values.append("gpu", gpu);
  if (choice.driver) values.set("driver", choice.driver);
  for (const [name, usual] of Object.entries(DEFAULTS)) {
    if (choice[name] !== usual) values.set(name, choice[name]);
  }
  if (choice.wheel) values.set("wheel", choice.wheel);
  return `#${values}`;
}

/** Return {host} for a choice, {error} for a wrong one, or {} if no GPU is given. */
function hostOf(choice) {
  if (!choice.gpus.length) return {};
  const none = choice.gpus.some((gpu) => ["none", "cpu"].includes(gpu.toLowerCase()));
  if (none && choice.gpus.length > 1) return { error: "none cannot be combined with a GPU." };
  const gpus = none ? [] : choice.gpus.map(parseGpu);
  const driver = parseDriver(none ? "" : choice.driver, choice.platform);
  const error = gpus.find((gpu) => gpu.error)?.error ?? driver.error;
  if (error) return { error };
  const elsewhere = gpus.find((gpu) => gpu.platform && gpu.platform !== choice.platform);
  if (elsewhere) return { error: `${elsewhere.name} exists on ${elsewhere.platform} only.` };
  const python = tables.pythons.indexOf(choice.python);
  const { framework: name, platform } = choice;
  const { interval } = driver;
  return { host: { name, gpus, driver: none ? "" : choice.driver, interval, python, platform } };
}

/** Return the command that gives the answer on the user's machine. */
function commandOf(choice) {
  const quote = (text) => (/^[\w.+-]+$/.test(text) ? text : `"${text}"`);
  const isFramework = choice.framework in tables.platforms[choice.platform].frameworks;
  const words = ["gpuenv", "solve"];
  words.push(...(isFramework ? ["--framework", choice.framework] : [choice.framework]));
  for (const gpu of choice.gpus) words.push("--gpu", quote(gpu));
  if (choice.driver) words.push("--driver", choice.driver);
  words.push("--python", choice.python, "--platform", choice.platform);
  return words.join(" ");
}

// ---- elements ---------------------------------------------------------------------------------

/** Make an element with attributes and children (elements and texts). */
function make(tag, attributes, ...children) {
  const element = document.createElement(tag);
  return fillElement(element, attributes, children);
}

/** Make an element of a picture. */
function draw(tag, attributes, ...children) {
  const element = document.createElementNS("http://www.w3.org/2000/svg", tag);
  return fillElement(element, attributes, children);
}

function fillElement(element, attributes, children) {
  for (const [name, value] of Object.entries(attributes)) element.setAttribute(name, value);
  element.append(...children);
  return element;
}

/** Make a table with a caption that can be scrolled by keyboard. */
function makeTable(caption, headings, rows, kind = "") {
  const head = make("tr", {}, ...headings.map((heading) => make("th", { scope: "col" }, heading)));
  const table = make(
    "table",
    { class: kind },
    make("caption", {}, caption),
    make("thead", {}, head),
    make("tbody", {}, ...rows),
  );
  return make(
    "div",
    { class: "wide", tabindex: "0", role: "region", "aria-label": caption },
    table,
  );
}

function makeRow(heading, cells) {
  return make("tr", {}, make("th", { scope: "row" }, heading), ...cells);
}

function makeCell(text, kind = "") {
  return make("td", kind ? { class: kind } : {}, text);
}

function makeList(pairs) {
  const items = pairs
    .filter(([, text]) => text)
    .flatMap(([name, text]) => [make("dt", {}, name), make("dd", {}, text)]);
  return make("dl", {}, ...items);
}

function sentence(reason) {
  return `${reason.subject} needs ${reason.need}; found ${reason.have}.`;
}

function evidenceText({ evidence, source }) {
  if (evidence === undefined) return "";
  return `${evidence}: ${tables.texts[source] || "no source"}`;
}

// ---- the view "answer" ------------------------------------------------------------------------

function showAnswer(choice, host) {
  const panel = document.getElementById("answer");
  const list = document.getElementById("releases");
  if (!host) {
    panel.className = "answer open";
    const title = make("h2", { id: "answer-title" }, "Type the name of a GPU");
    panel.replaceChildren(title, make("p", {}, "For example: ", ...exampleLinks()));
    list.replaceChildren(make("p", { class: "faint" }, "Type a GPU to list the releases."));
    return;
  }
  const result = answer(host);
  panel.className = result.chosen ? "answer" : "answer none";
  panel.replaceChildren(...answerElements(choice, host, result));
  const note = make("p", { class: "faint" }, "The releases are listed for hosts with a GPU.");
  list.replaceChildren(host.gpus.length ? releaseTable(host, result) : note);
}

function exampleLinks() {
  const examples = [
    ["GTX 1080 Ti with driver 580", { gpus: ["GTX 1080 Ti"], driver: "580" }],
    ["B200 with driver 570", { gpus: ["B200"], driver: "570.86.15" }],
    ["vLLM on a V100", { gpus: ["V100"], framework: "vllm" }],
    ["V100 and H100 together", { gpus: ["V100", "H100"], driver: "580.65.06" }],
  ];
  return examples.flatMap(([text, part], place) => {
    const choice = { ...readChoice(""), ...part };
    const link = make("a", { href: fragmentOf(choice) }, text);
    return place ? [", ", link] : [link];
  });
}

function answerElements(choice, host, { chosen, judged, refusal }) {
  const title = make("h2", { id: "answer-title" });
  if (!chosen) {
    const runs = judged.every((one) => one.isKnown) ? "runs" : "is known to run";
    title.append(`No release of ${host.name} ${runs} here`);
    const why = make(
      "p",
      { class: "bad" },
      refusal ? sentence(refusal) : "The data has no release for this platform.",
    );
    return [title, why, make("p", {}, helpText(host, judged))];
  }
  const { release } = chosen;
  const build =
    release.variant && !release.version.includes(release.variant) ? `, ${release.variant}` : "";
  title.append(`${host.name} ${release.version}${build}`);
  const isFramework = host.name in tables.platforms[host.platform].frameworks;
  const scope = isFramework
    ? ""
    : "This answer compares the device code of the wheel with the GPU and the driver. " +
      "gpuenv solve also chooses a framework that fits.";
  const facts = makeList([
    ["Driver", host.gpus.length ? driverText(driversOf(release, host)) : "none is needed"],
    ["CUDA", release.cuda],
    ["cuDNN", release.cudnn],
    ["glibc", release.glibc && `${release.glibc} or newer`],
    ["Runs by", host.gpus.length ? tierText(chosen.tier) : "the CPU"],
    ["Doubts", chosen.reasons.map(sentence).join(" ")],
    ["Evidence", evidenceText(release)],
  ]);
  return [title, make("p", { class: "faint" }, scope), commandElement(choice), facts];
}

function tierText(tier) {
  return (
    ["code for the device (SASS)", "PTX, which the driver compiles"][tier] ??
    "code that is not known"
  );
}

function commandElement(choice) {
  const code = make("code", { id: "command" }, commandOf(choice));
  const button = make("button", { type: "button" }, "Copy");
  button.addEventListener("click", () => {
    const range = document.createRange();
    range.selectNodeContents(code);
    getSelection().removeAllRanges();
    getSelection().addRange(range);
    navigator.clipboard?.writeText(code.textContent).then(
      () => button.replaceChildren("Copied"),
      () => {},
    );
  });
  return make("div", { class: "command" }, code, button);
}

/** Return which release would run with another driver or Python, or else with another GPU. */
function helpText(host, judged) {
  const keepsGpus = (one) => one.release.pythons?.length !== 0 && driversOf(one.release, host);
  const nearest = judged.find(keepsGpus) ?? judged.find((one) => changes(one, host));
  if (!nearest) return "";
  return `${host.name} ${nearest.release.version} needs ${changes(nearest, host)}.`;
}

function releaseTable(host, { chosen, judged }) {
  const rows = judged.map((one) => {
    const { release } = one;
    let state = makeCell("no", "bad");
    if (one.release === chosen?.release) state = makeCell("chosen", "good");
    else if (one.runs) state = makeCell("runs", "good");
    else if (one.reasons.every((reason) => reason.doubt)) state = makeCell("unknown", "open-cell");
    const why = one.runs ? "" : sentence(one.reasons[0]);
    const change = one.runs ? "" : changes(one, host);
    return makeRow(release.version, [
      makeCell(release.cuda ?? "", "short"),
      state,
      makeCell(why),
      makeCell(change),
      makeCell(release.evidence, "short"),
    ]);
  });
  const headings = ["Release", "CUDA", "Here", "Why not", "What it would take", "Evidence"];
  return makeTable(`Releases of ${host.name}, best first`, headings, rows, "releases");
}

// ---- the view "wheel" -------------------------------------------------------------------------

/** Return [text, package, release] of every release on a platform. */
function allWheels(platform) {
  const { frameworks, libraries } = tables.platforms[platform];
  return [...Object.keys(frameworks), ...Object.keys(libraries)].flatMap((name) =>
    releasesOf({ name, platform }).map((release) => [
      `${name} ${release.version}`,
      name,
      release,
    ]),
  );
}

function showWheel(choice) {
  const wheels = allWheels(choice.platform);
  const list = document.getElementById("wheels");
  list.replaceChildren(...wheels.map(([text]) => make("option", { value: text })));
  const output = document.getElementById("wheel-answer");
  const typed = choice.wheel.trim().toLowerCase().replace("==", " ");
  const wheel =
    wheels.find(([text]) => text.toLowerCase() === typed) ??
    wheels.find(([text]) => typed && text.toLowerCase().startsWith(`${typed} `)) ??
    wheels.find(([text]) => typed && text.toLowerCase().startsWith(typed));
  if (!wheel) {
    const text = typed ? `${choice.wheel} is not in the data for ${choice.platform}.` : "";
    output.replaceChildren(make("p", {}, text));
    return;
  }
  const [text, name, release] = wheel;
  const rows = tables.capabilities.map((capability, column) => {
    const gpus = tables.gpus.names.filter(([, place]) => place === column).map(([gpu]) => gpu);
    const { platform } = choice;
    const drivers = driversOf(release, { platform, gpus: [{ capability: column }] });
    const best = bestOf(release, column);
    const [kind, how] = CELLS[best];
    return makeRow(capability, [
      makeCell(how, `short ${kind}`),
      makeCell(driverText(drivers), "driver"),
      makeCell(gpus.join(", "), "faint"),
    ]);
  });
  const pythons = (release.pythons ?? []).map((python) => tables.pythons[python]);
  const facts = makeList([
    ["CUDA", release.cuda],
    ["cuDNN", release.cudnn],
    ["Python", pythons.join(", ")],
    ["Evidence", evidenceText(release)],
  ]);
  const headings = ["Capability", "Runs by", "Driver", "GPUs"];
  const caption = `GPUs and drivers of ${text} on ${choice.platform}`;
  const table = makeTable(caption, headings, rows, "releases");
  output.replaceChildren(make("h3", {}, text), facts, table);
}

// ---- the view "table" -------------------------------------------------------------------------

const CELLS = {
  sass: ["sass", "SASS"],
  ptx: ["ptx", "PTX"],
  open: ["open-cell", "unknown"],
  no: ["no", "no"],
};

/** Return how a release runs on a compute capability with the best driver: a key of CELLS. */
function bestOf(release, capability) {
  const steps = release.plans.flatMap((plan) => tables.columns[tables.plans[plan][capability]]);
  const tiers = steps.map(([, tier]) => tier).filter((tier) => tier >= 0);
  if (!tiers.length) return "no";
  return ["sass", "ptx", "open"][Math.min(...tiers)];
}

function showTable(choice) {
  const releases = releasesOf({ name: choice.framework, platform: choice.platform });
  const rows = releases.map((release) => {
    const cells = tables.capabilities.map((_, capability) => {
      const [kind, text] = CELLS[bestOf(release, capability)];
      return makeCell(text, kind);
    });
    const wheel = `${choice.framework} ${release.version}`;
    const href = fragmentOf({ ...choice, view: "wheel", wheel });
    const link = make("a", { href }, release.version);
    return makeRow(link, [...cells, makeCell(release.evidence)]);
  });
  const note = make(
    "p",
    { class: "faint" },
    "The table assumes a driver that is new enough. SASS is code for the device. " +
      "The driver compiles PTX. Unknown means that no source has the answer.",
  );
  const caption = `Releases of ${choice.framework} on ${choice.platform} by compute capability`;
  const headings = ["Release", ...tables.capabilities, "Evidence"];
  const table = rows.length
    ? makeTable(caption, headings, rows, "matrix")
    : make("p", {}, `${choice.framework} has no row for ${choice.platform}.`);
  document.getElementById("table").replaceChildren(note, table);
}

// ---- the view "charts" ------------------------------------------------------------------------

function showCharts(choice) {
  const { platform } = choice;
  const { frameworks, libraries } = tables.platforms[platform];
  const name = choice.framework in frameworks ? choice.framework : "torch";
  const releases = frameworks[name].releases.filter((one) => one.pythons.length);
  const versions = [...new Set(releases.map((one) => one.public))].reverse();
  const buildsOf = (version) => releases.filter((one) => one.public === version);
  const figures = [
    serviceChart(`GPUs that releases of ${name} serve (${platform})`, versions, buildsOf),
    driverChart(
      `Oldest driver of the releases of ${name} (${platform})`,
      versions,
      buildsOf,
      platform,
    ),
  ];
  for (const cudnn of Object.keys(libraries).filter((one) => one.includes("cudnn"))) {
    const rows = releasesOf({ name: cudnn, platform });
    const lines = [...new Set(rows.map((one) => one.version))].reverse();
    figures.push(
      serviceChart(`GPUs that ${cudnn} serves: what was dropped, and when`, lines, (version) =>
        rows.filter((one) => one.version === version),
      ),
    );
  }
  document.getElementById("charts").replaceChildren(...figures);
}

const LEFT = 80;
const WIDTH = 900;
const ROW = 18;

/** Draw which compute capabilities (rows) the releases (columns) serve, and list it as text. */
function serviceChart(title, versions, buildsOf) {
  const step = (WIDTH - LEFT) / Math.max(versions.length, 1);
  const all = tables.capabilities.map((capability, column) => ({
    capability,
    row: versions.map((version) =>
      buildsOf(version).some((build) => bestOf(build, column) !== "no"),
    ),
  }));
  const served = all.filter(({ row }) => row.includes(true));
  const marks = served.flatMap(({ row }, y) =>
    row.map((runs, x) =>
      draw("rect", {
        x: LEFT + x * step + 0.5,
        y: y * ROW + 2,
        width: Math.max(step - 1, 1),
        height: ROW - 4,
        class: runs ? "mark" : "gap",
      }),
    ),
  );
  const labels = served.map(({ capability }, y) =>
    draw("text", { x: 0, y: y * ROW + 14 }, capability),
  );
  const lines = served.map(({ capability, row }) => `${capability}: ${spanText(row, versions)}`);
  const height = served.length * ROW;
  return figureOf(
    title,
    [...marks, ...labels, ...axis(versions, step, height)],
    height + 30,
    lines,
  );
}

/** Return the first and the last version that are served, as "2.0.0 to 2.13.0". */
function spanText(row, versions) {
  const first = row.indexOf(true);
  const last = row.lastIndexOf(true);
  return last === row.length - 1
    ? `${versions[first]} and newer`
    : `${versions[first]} to ${versions[last]}`;
}

/** Draw the oldest driver of the build for the newest CUDA, and of the build for the oldest. */
function driverChart(title, versions, buildsOf, platform) {
  const { thresholds } = tables.platforms[platform];
  const step = (WIDTH - LEFT) / Math.max(versions.length, 1);
  const floors = versions.map((version) =>
    buildsOf(version)
      .map(firstInterval)
      .filter((one) => one !== null),
  );
  const used = [...new Set(floors.flat())].sort((one, other) => one - other);
  const y = (interval) => (used.length - 1 - used.indexOf(interval)) * 32 + 20;
  const path = (pick, kind) =>
    draw("polyline", {
      class: kind,
      points: floors
        .map((all, x) =>
          all.length
            ? `${LEFT + x * step},${y(pick(...all))} ${LEFT + (x + 1) * step},${y(pick(...all))}`
            : "",
        )
        .join(" "),
    });
  const name = (interval) => (interval ? driverName(thresholds[interval - 1]) : "any");
  const labels = used.map((interval) => draw("text", { x: 0, y: y(interval) + 4 }, name(interval)));
  const height = used.length * 32;
  const content = [
    path(Math.max, "line"),
    path(Math.min, "line other"),
    ...labels,
    ...axis(versions, step, height),
  ];
  const lines = versions.map((version, x) =>
    floors[x].length
      ? `${version}: ${name(Math.min(...floors[x]))} to ${name(Math.max(...floors[x]))}`
      : `${version}: unknown`,
  );
  const caption = `${title}. Solid: the build for the newest CUDA; dashed: for the oldest.`;
  return figureOf(caption, content, height + 30, lines);
}

/** Return the first interval in which some GPU runs a build; null if none does. */
function firstInterval(build) {
  const columns = build.plans.flatMap((plan) => tables.plans[plan]);
  const starts = columns.flatMap((column) =>
    tables.columns[column].filter(([, tier]) => tier >= 0).map(([start]) => start),
  );
  return starts.length ? Math.min(...starts) : null;
}

/** Draw the names of some versions below a chart. */
function axis(versions, step, height) {
  const every = Math.ceil(70 / step);
  const shown = versions
    .map((version, x) => [version, x])
    .filter(([, x]) => x % every === 0 && x * step < WIDTH - LEFT - 50);
  return shown.map(([version, x]) =>
    draw("text", { x: LEFT + x * step, y: height + 18, class: "faint" }, version),
  );
}

function figureOf(title, content, height, lines) {
  const picture = draw(
    "svg",
    {
      role: "img",
      "aria-label": title,
      viewBox: `0 0 ${WIDTH} ${height}`,
    },
    ...content,
  );
  const words = make(
    "details",
    {},
    make("summary", {}, "The same in words"),
    make("ul", {}, ...lines.map((line) => make("li", {}, line))),
  );
  const wide = make(
    "div",
    { class: "wide", tabindex: "0", role: "region", "aria-label": title },
    picture,
  );
  return make("figure", {}, make("figcaption", {}, title), wide, words);
}

// ---- the page ---------------------------------------------------------------------------------

const SHOW = {
  answer: (choice, host) => showAnswer(choice, host),
  wheel: showWheel,
  table: showTable,
  charts: showCharts,
};

/** Show a choice: its fields, its view and its error. */
function show(choice) {
  const form = document.getElementById("choice");
  for (const name of ["driver", "framework", "python", "platform"]) {
    if (form.elements[name].value !== choice[name]) form.elements[name].value = choice[name];
  }
  const { gpu } = form.elements;
  if (splitGpus(gpu.value).join() !== choice.gpus.join()) gpu.value = choice.gpus.join(", ");
  const wheel = document.getElementById("wheel");
  if (wheel.value !== choice.wheel) wheel.value = choice.wheel;

  const { host, error } = hostOf(choice);
  document.getElementById("problem").replaceChildren(error ?? "");
  gpu.setAttribute("aria-invalid", Boolean(error));
  for (const section of document.querySelectorAll("[data-section]")) {
    section.hidden = section.dataset.section !== choice.view;
  }
  for (const link of document.querySelectorAll("[data-view]")) {
    link.href = fragmentOf({ ...choice, view: link.dataset.view });
    if (link.dataset.view === choice.view) link.setAttribute("aria-current", "page");
    else link.removeAttribute("aria-current");
  }
  SHOW[choice.view](choice, host);
}

function splitGpus(text) {
  return text
    .split(",")
    .map((gpu) => gpu.trim())
    .filter(Boolean);
}

/** Return the choice that the fields name. */
function chosenInForm() {
  const { gpu, driver, framework, python, platform } = document.getElementById("choice").elements;
  const wheel = document.getElementById("wheel").value;
  return {
    ...readChoice(location.hash),
    gpus: splitGpus(gpu.value),
    driver: driver.value.trim(),
    wheel,
    framework: framework.value,
    python: python.value,
    platform: platform.value,
  };
}

/** Show the choice of the fields, and write it to the URL; `isNew` adds a history entry. */
function update(isNew) {
  const choice = chosenInForm();
  const fragment = fragmentOf(choice);
  if (isNew && fragment !== history.state) history.pushState(fragment, "", fragment);
  else if (fragment !== location.hash) history.replaceState(history.state, "", fragment);
  show(choice);
}

function start() {
  for (const element of [document.getElementById("choice"), document.getElementById("wheel")]) {
    element.addEventListener("input", () => update(false));
    element.addEventListener("change", () => update(true));
  }
  document.getElementById("choice").addEventListener("submit", (event) => {
    event.preventDefault();
    update(true);
  });
  document.getElementById("skip").addEventListener("click", (event) => {
    event.preventDefault();
    document.getElementById("main").focus();
  });
  addEventListener("popstate", () => show(readChoice(location.hash)));
  show(readChoice(location.hash));
}

if (document.querySelector("main")) start();
