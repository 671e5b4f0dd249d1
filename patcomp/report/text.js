// Pieces of which lists and details are made: links, sections, tables, numbers.

const SHOWN = 200; // entries of a list; more are counted

/** A text that a line may break behind dots, slashes and underscores. */
const breakable = (text) => String(text).split(/(?<=[._/])(?=[^._/])/).flatMap((part, index) => (index ? [element("wbr"), part] : [part]));

function link(label, act, title) {
  return element("button", { class: "link", onclick: act, title }, breakable(label));
}

const section = (title, children) => (children.length ? [...(title ? [element("h3", {}, [title])] : []), ...children] : []);
const listed = (children) => element("ul", {}, children.map((child) => element("li", {}, child)));
const paragraph = (...children) => element("p", {}, children);

function capped(entries, make, most = SHOWN) {
  const rest = entries.length - most;
  return [listed(entries.slice(0, most).map(make)), ...(rest > 0 ? [element("p", { class: "faint" }, [`${rest} more are not listed.`])] : [])];
}

const cell = (content) => (content instanceof Node ? [content] : breakable(content));

/** A table; columns whose headings start with `#` hold numbers. */
function table(headings, rows) {
  const isNumber = headings.map((heading) => heading.startsWith("#"));
  const kind = (index) => (isNumber[index] ? "number" : null);
  const body = rows.slice(0, SHOWN).map((row) => element("tr", {}, row.map((each, index) => element("td", { class: kind(index) }, isNumber[index] ? [each] : cell(each)))));
  const rest = rows.length - SHOWN;
  if (rest > 0) body.push(element("tr", {}, [element("td", { colspan: headings.length, class: "faint" }, [`${rest} more`])]));
  return element("div", { class: "wide" }, [element("table", {}, [
    element("thead", {}, [element("tr", {}, headings.map((heading, index) => element("th", { class: kind(index) }, breakable(heading.replace("#", "")))))]),
    element("tbody", {}, body),
  ])]);
}

const digits = (number) => (typeof number !== "number" ? number : number === 0 ? "0" : Math.abs(number) < 1e-3 ? number.toExponential(2) : number.toPrecision(3));
const passed = (error) => element("span", { class: error.passed ? "good" : "bad" }, [error.passed ? "passed" : "FAILED"]);
const inUnits = (number, units) => {
  const [least, unit] = units.find(([each]) => number >= each) || [1, ""];
  const scaled = number / least;
  return unit ? `${scaled >= 100 ? scaled.toFixed(0) : scaled.toFixed(1)} ${unit}` : String(number);
};
const size = (bytes) => (bytes < 1e3 ? `${bytes} B` : inUnits(bytes, [[1e9, "GB"], [1e6, "MB"], [1e3, "kB"]]));
const amount = (number) => inUnits(number, [[1e12, "T"], [1e9, "G"], [1e6, "M"], [1e3, "k"]]);
const counted = (count, thing) => `${count} ${thing}${count === 1 ? "" : "s"}`;
const total = (rows, value) => rows.reduce((sum, row) => sum + value(row), 0);

const largestFirst = (found) => found.sort((a, b) => b[1] - a[1]);

/** The sums of rows by a key, the largest first, or in another order. */
function sums(rows, key, value, ordered = largestFirst) {
  const found = new Map();
  for (const row of rows) found.set(key(row), (found.get(key(row)) || 0) + value(row));
  return ordered([...found]);
}

/** The element type of a tensor type: `f32`. */
const elementOf = (type) => plainType(type).split(" ").pop();
