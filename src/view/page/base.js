"use strict";
const data = JSON.parse(document.getElementById("data")?.textContent || "{}");
const element = (id) => document.getElementById(id);

const digits = (number) => number >= 100 ? number.toFixed(0) : number >= 10 ? number.toFixed(1) : number.toFixed(2);
function amount(number, unit) {
  const prefixes = ["", "k", "M", "G", "T", "P"];
  let prefix = 0;
  while (number >= 1000 && prefix < 5) { number /= 1000; prefix++; }
  return `${prefix ? digits(number) : Math.round(number)} ${prefixes[prefix]}${unit}`.trim();
}
function time(ns) {
  return ns >= 1e9 ? `${digits(ns / 1e9)} s` : ns >= 1e6 ? `${digits(ns / 1e6)} ms` : ns >= 1e3 ? `${digits(ns / 1e3)} µs` : `${Math.round(ns)} ns`;
}
const percent = (share) => `${digits(100 * share)} %`;

function make(tag, properties, ...children) {
  const node = Object.assign(document.createElement(tag), properties);
  node.append(...children.filter((child) => child !== null && child !== undefined));
  return node;
}

const SVG = "http://www.w3.org/2000/svg";
function svg(tag, attributes, ...children) {
  const node = document.createElementNS(SVG, tag);
  for (const name in attributes) node.setAttribute(name, attributes[name]);
  node.append(...children);
  return node;
}
