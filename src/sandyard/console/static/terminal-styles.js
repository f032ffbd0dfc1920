// xterm.js makes style elements; the page's policy lets only those with its nonce through.
const { nonce } = document.currentScript.dataset;
const create = document.createElement.bind(document);
document.createElement = (name, ...rest) => {
  const element = create(name, ...rest);
  if (name.toLowerCase() === "style") element.nonce = nonce;
  return element;
};
