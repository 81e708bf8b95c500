// The front panel. It gets parts of the picture, by name, as lines of JSON (/events), and draws those that have changed. All texts are
// set as text: whoever names a Server or writes a condition can put no markup here.

const token = location.hash.slice(1);
const parts = new Map();
const drawn = new Map(); // elements of slots, by the part's name
let canAct = false;
let chosen = ""; // the slot whose card is open
let highlighted = ""; // the Store whose members are shown alone
const byId = (id) => document.getElementById(id);

const words = {
  Up: "up", Starting: "start", Stopping: "stop", Isolated: "isol", Failed: "fail", Off: "off", Unknown: "?", Empty: "", Storage: "disk",
};
const legend = {
  Up: "up", Starting: "starting", Stopping: "stopping", Isolated: "isolated", Failed: "failed", Off: "off", Unknown: "unknown",
};
const actions = [
  ["locate", "Let its light blink", ""], ["unlocate", "Stop the light", ""], ["on", "Switch on", ""],
  ["soft", "Shut down", "Shut down"], ["isolate", "Isolate its node", "Isolate"],
];

function make(tag, className, text) {
  const element = document.createElement(tag);
  if (className) element.className = className;
  if (text !== undefined) element.textContent = text;
  return element;
}

const natural = new Intl.Collator("en", { numeric: true }).compare;
function named(prefix) {
  return [...parts.keys()].filter((name) => name.startsWith(prefix)).sort(natural).map((name) => [name, parts.get(name)]);
}

// colourOf: a Store keeps its colour while Stores come and go.
function colourOf(store) {
  let sum = 0;
  for (const letter of store) sum = (sum * 31 + letter.codePointAt(0)) % 60000;
  return "store-" + (sum % 6);
}

function drawRack() {
  drawn.clear();
  byId("rack").replaceChildren(...named("chassis/").map(([, chassis]) => {
    const box = make("section", "chassis");
    box.dataset.chassis = chassis.name;
    box.append(make("div"));
    for (const row of chassis.rows) {
      const line = make("div", "row");
      line.setAttribute("role", "group");
      for (const number of row) {
        const name = `slot/${chassis.name}/${number}`;
        const button = make("button", "slot");
        button.type = "button";
        button.dataset.name = name;
        button.tabIndex = -1;
        drawn.set(name, button);
        line.append(button);
      }
      box.append(line);
    }
    return box;
  }));
  for (const name of drawn.keys()) drawSlot(name);
  for (const box of byId("rack").children) drawHead(box);
  const first = drawn.get(chosen) ?? drawn.values().next().value;
  if (first) first.tabIndex = 0;
}

function drawHead(box) {
  const chassis = parts.get("chassis/" + box.dataset.chassis);
  box.setAttribute("aria-label", "Chassis " + chassis.name);
  const head = make("header");
  head.append(make("h2", "", chassis.name), make("span", "place", [chassis.model, chassis.place].filter(Boolean).join(", ")));
  const watts = chassis.watts === undefined ? "" : `, ${chassis.watts}${chassis.budget ? " of " + chassis.budget : ""} W`;
  head.append(make("span", "figures", `${chassis.on} of ${chassis.total} on${watts}`));
  head.append(make("span", "boards", (chassis.managers ?? []).map((board) => `${board.name} ${board.role.toLowerCase()}`).join(" · ")));
  const rest = make("div");
  if (chassis.cables) {
    const list = make("ul", "cables");
    list.append(...chassis.cables.map((cable) => {
      const item = make("li", cable.isKnown ? (cable.peerQsfp ? "" : "one-end") : "unknown");
      const socket = make("span", "socket");
      socket.dataset.socket = `${chassis.name}/${cable.qsfp}`;
      const end = cable.peerQsfp ? ` QSFP ${cable.peerQsfp}` : cable.isKnown ? ` (${cable.peer} does not name it)` : " (no such Chassis)";
      item.append(socket, `QSFP ${cable.qsfp} ${cable.mode ?? ""} → ${cable.peer}${end}`);
      return item;
    }));
    rest.append(list);
  }
  rest.append(head);
  if (chassis.troubles) {
    const list = make("ul", "troubles");
    list.append(...chassis.troubles.map((text) => make("li", "", text)));
    rest.append(list);
  }
  box.firstElementChild.replaceWith(rest);
}

// drawCables: each as one line, from socket to socket: up from the socket, along the gap above its chassis, and along the gap to the left of
// the other chassis. A cable that the peer does not name ends at the peer's corner.
function drawCables() {
  const origin = byId("cables").getBoundingClientRect();
  const boxes = new Map([...byId("rack").children].map((box) => [box.dataset.chassis, box.getBoundingClientRect()]));
  const sockets = new Map([...document.querySelectorAll("[data-socket]")].map((element) => [element.dataset.socket, element.getBoundingClientRect()]));
  const lines = [];
  for (const [, chassis] of named("chassis/")) {
    for (const cable of chassis.cables ?? []) {
      const here = sockets.get(`${chassis.name}/${cable.qsfp}`);
      const there = sockets.get(`${cable.peer}/${cable.peerQsfp}`);
      const [box, peer] = [boxes.get(chassis.name), boxes.get(cable.peer)];
      const isDrawn = there && natural(cable.peer, chassis.name) < 0; // from its other end
      if (!here || !peer || isDrawn || cable.peer === chassis.name) continue;
      const lane = 2 + 2 * (lines.length % 4); // cables beside each other are told apart
      const left = peer.left - lane;
      const [x, end] = [here.left + here.width / 2, there ? there.left + there.width / 2 : peer.left];
      const points = [[x, here.top], [x, box.top - lane], [left, box.top - lane], [left, peer.top - lane], [end, peer.top - lane],
        [end, there ? there.top : peer.top]];
      const path = document.createElementNS("http://www.w3.org/2000/svg", "path");
      path.setAttribute("d", "M" + points.map(([h, v]) => `${h - origin.left} ${v - origin.top}`).join("L"));
      path.setAttribute("class", there ? "" : "one-end");
      path.dataset.cable = `${chassis.name}/${cable.qsfp} ${cable.peer}/${cable.peerQsfp ?? ""}`;
      lines.push(path);
    }
  }
  byId("cables").replaceChildren(...lines);
}
new ResizeObserver(drawCables).observe(byId("rack"));

function drawSlot(name) {
  const button = drawn.get(name);
  const slot = parts.get(name);
  if (!button || !slot) return;
  const isMember = (slot.members ?? []).some((member) => `${member.namespace}/${member.store}` === highlighted);
  button.className = "slot state-" + slot.state + (slot.blinks ? " blinks" : "") + (highlighted && !isMember ? " dimmed" : "");
  button.setAttribute("aria-pressed", String(name === chosen));
  const members = (slot.members ?? []).map((member) => `${member.name} of ${member.store}, ${member.tablets ?? 0} tablets`).join("; ");
  const label = [`slot ${slot.number}`, slot.server, legend[slot.state] ?? slot.state, slot.text, members].filter(Boolean).join(", ");
  button.setAttribute("aria-label", label);
  button.title = label;
  const children = [make("span", "number", String(slot.number)), make("span", "led"), make("span", "word", words[slot.state])];
  for (const member of slot.members ?? []) {
    if (highlighted && `${member.namespace}/${member.store}` !== highlighted) continue;
    const colour = colourOf(`${member.namespace}/${member.store}`);
    children.push(bar(`member ${colour}${member.recovers ? " lost" : ""}`, member.state === "Coordinator" ? 100 : member.usedPercent));
    if (member.copiesPercent !== undefined) children.push(bar("member copies " + colour, member.copiesPercent));
  }
  const tablets = (slot.members ?? []).filter((member) => `${member.namespace}/${member.store}` === highlighted)
    .reduce((sum, member) => sum + (member.tablets ?? 0), 0);
  children.push(make("span", "heat", isMember ? `${tablets} tab` : slot.temperature ?? ""));
  button.replaceChildren(...children);
}

function bar(className, percent) {
  const outside = make("span", className);
  const inside = make("i");
  inside.style.width = Math.max(0, Math.min(100, percent)) + "%";
  outside.append(inside);
  return outside;
}

function drawStores() {
  byId("stores").replaceChildren(...named("store/").map(([, store]) => {
    const item = make("li");
    const key = `${store.namespace}/${store.name}`;
    const button = make("button", colourOf(key));
    button.type = "button";
    button.setAttribute("aria-pressed", String(highlighted === key));
    button.append(make("strong", "", key), make("small", store.ready ? "" : "bad", store.text));
    for (const text of store.recoveries ?? []) button.append(make("small", "bad", text));
    button.addEventListener("click", () => {
      highlighted = highlighted === key ? "" : key;
      drawStores();
      for (const name of drawn.keys()) drawSlot(name);
    });
    item.append(button);
    return item;
  }));
}

function drawNotes() {
  byId("notes").replaceChildren(...named("note/").map(([, note]) => make("li", "", note.text)));
}

function drawSummary() {
  let on = 0;
  let total = 0;
  const all = named("chassis/");
  for (const [, chassis] of all) {
    on += chassis.on;
    total += chassis.total;
  }
  byId("summary").textContent = `${all.length} chassis, ${on} of ${total} servers are on`;
}

function drawCard() {
  const card = byId("card");
  const slot = parts.get(chosen);
  card.hidden = !slot;
  if (!slot) return;
  // A question that waits for its answer stays, and so does what an order has said.
  const kept = card.dataset.name === chosen ? [...card.querySelectorAll(".buttons, .said")] : [];
  const focused = kept.find((element) => element.contains(document.activeElement)) ? document.activeElement : null;
  card.dataset.name = chosen;
  const facts = make("dl");
  const add = (name, value, isBad) => facts.append(make("dt", "", name), make("dd", isBad ? "bad" : "", value));
  add("slot", `${slot.number} of ${slot.chassis}`);
  for (const member of slot.members ?? []) {
    add("member", `${member.name} of ${member.namespace}/${member.store}: ${member.state}, ${member.tablets ?? 0} tablets, log ${member.usedPercent} % full`
      + (member.copiesPercent === undefined ? "" : `, room for copies ${member.copiesPercent} % full`), member.recovers);
  }
  for (const fact of slot.facts ?? []) add(fact.name, fact.value, fact.isBad);
  const state = make("p", "state-" + slot.state);
  state.append(make("span", "led"), " " + slot.text);
  card.replaceChildren(make("h2", "", slot.server ?? `Slot ${slot.number}`), state, facts);
  if (canAct && slot.server) card.append(...(kept.length ? kept : buttonsFor(slot)));
  focused?.focus();
}

function buttonsFor(slot) {
  const buttons = make("div", "buttons");
  const said = make("p", "said");
  said.setAttribute("role", "status");
  const offer = () => buttons.replaceChildren(...actions.map(([action, text, question]) => {
    const button = make("button", "", text);
    button.type = "button";
    button.dataset.action = action;
    button.addEventListener("click", () => (question ? ask(action, question) : order(action)));
    return button;
  }));
  const ask = (action, question) => {
    const yes = make("button", "", `${question} ${slot.server}`);
    const no = make("button", "", "Do nothing");
    yes.type = no.type = "button";
    yes.dataset.action = action + "-confirmed";
    yes.addEventListener("click", () => { offer(); order(action); });
    no.addEventListener("click", offer);
    buttons.replaceChildren(yes, no);
    no.focus();
  };
  const order = async (action) => {
    said.className = "said";
    said.textContent = "asked ...";
    try {
      const answer = await fetch("order", {
        method: "POST", body: JSON.stringify({ action, server: slot.server }),
        headers: { "Content-Type": "application/json", Authorization: "Bearer " + token },
      });
      const told = await answer.json();
      said.className = answer.ok ? "said" : "said bad";
      said.textContent = answer.ok ? told.text : `${answer.status}: ${told.error}`;
    } catch (error) {
      said.className = "said bad";
      said.textContent = `kubectl rcbox panel does not answer: ${error.message}`;
    }
  };
  offer();
  return [buttons, said];
}

function choose(name) {
  const before = chosen;
  chosen = name;
  for (const one of [before, name]) drawSlot(one);
  drawCard();
  byId("card").scrollIntoView({ block: "nearest" }); // on a narrow page it is below the chassis
}

// move: to the next slot in a row, or to the slot below or above, across chassis.
function move(from, key) {
  if (key === "ArrowLeft" || key === "ArrowRight") {
    const all = [...drawn.values()];
    return all[all.indexOf(from) + (key === "ArrowRight" ? 1 : -1)];
  }
  const rows = [...document.querySelectorAll(".row")];
  const row = rows[rows.indexOf(from.parentElement) + (key === "ArrowDown" ? 1 : -1)];
  return row?.children[Math.min([...from.parentElement.children].indexOf(from), row.children.length - 1)];
}

byId("rack").addEventListener("click", (event) => {
  const slot = event.target.closest(".slot");
  if (slot) choose(slot.dataset.name === chosen ? "" : slot.dataset.name);
});
byId("rack").addEventListener("keydown", (event) => {
  const slot = event.target.closest(".slot");
  if (!slot || !event.key.startsWith("Arrow")) return;
  event.preventDefault();
  move(slot, event.key)?.focus();
});
byId("rack").addEventListener("focusin", (event) => {
  const slot = event.target.closest(".slot");
  if (!slot) return;
  for (const other of document.querySelectorAll(".slot[tabindex='0']")) other.tabIndex = -1;
  slot.tabIndex = 0;
});
document.addEventListener("keydown", (event) => {
  if (event.key !== "Escape" || !chosen) return;
  const slot = drawn.get(chosen);
  choose("");
  slot?.focus();
});
byId("legend").append(...Object.entries(legend).map(([state, text]) => {
  const item = make("li", "state-" + state);
  item.append(make("span", "led"), " " + text);
  return item;
}));

const shape = () => JSON.stringify(named("chassis/").map(([name, chassis]) => [name, chassis.rows]));

function take(change) {
  const before = shape();
  for (const [name, part] of Object.entries(change.set ?? {})) parts.set(name, part);
  for (const name of change.gone ?? []) parts.delete(name);
  canAct = parts.get("panel")?.canAct ?? false;
  const touched = [...Object.keys(change.set ?? {}), ...(change.gone ?? [])];
  const touches = (prefix) => touched.some((name) => name.startsWith(prefix));
  if (shape() !== before) {
    drawRack();
  } else {
    for (const name of touched) if (name.startsWith("slot/")) drawSlot(name);
    if (touches("chassis/")) for (const box of byId("rack").children) drawHead(box);
  }
  if (touches("chassis/")) {
    drawSummary();
    drawCables();
  }
  if (touches("store/")) drawStores();
  if (touches("note/")) drawNotes();
  if (chosen && (touched.includes(chosen) || touched.includes("panel"))) drawCard();
}

// follow reads lines until the connection ends.
async function follow() {
  const answer = await fetch("events", { headers: { Authorization: "Bearer " + token } });
  if (!answer.ok) throw new Error((await answer.json()).error);
  take({ gone: [...parts.keys()].filter((name) => name.startsWith("note/")) }); // what comes first is everything
  let isFirst = true;
  let text = "";
  for await (const piece of answer.body.pipeThrough(new TextDecoderStream())) {
    const lines = (text + piece).split("\n");
    text = lines.pop();
    for (const line of lines) {
      const change = JSON.parse(line);
      if (isFirst && change.set) {
        change.gone = [...parts.keys()].filter((name) => !(name in change.set));
        isFirst = false;
      }
      take(change);
    }
  }
}

const longestPause = 10000;
for (let pause = 500; ; pause = Math.min(2 * pause, longestPause)) {
  const begun = Date.now();
  try {
    await follow();
    take({ set: { "note/connection": { text: "The panel's program has ended the connection. This is what was seen last." } } });
  } catch (error) {
    take({ set: { "note/connection": { text: `The panel's program does not answer: ${error.message}. This is what was seen last.` } } });
  }
  if (Date.now() - begun > longestPause) pause = 500;
  await new Promise((resolve) => setTimeout(resolve, pause));
}
