// Before anything is drawn: the theme that its viewer chose, if any.
const chosen = localStorage.getItem("theme");
if (chosen) document.documentElement.dataset.theme = chosen;
