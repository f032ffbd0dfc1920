import { greeting } from "./greeting.js";

const hello = document.querySelector("#hello");
hello.textContent = greeting;

// Change greeting.js and see: the page is not loaded again.
import.meta.hot?.accept("./greeting.js", (changed) => {
  hello.textContent = changed.greeting;
});
