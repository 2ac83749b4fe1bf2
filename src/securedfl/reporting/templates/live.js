"use strict";
// The server sends the changing part of the page, escaped; whatever script was in it would not run (the page's policy).
const live = document.getElementById("live"), gone = document.getElementById("gone");
let over = false;
const source = new EventSource("events");
source.onmessage = (event) => {
  const told = JSON.parse(event.data);
  live.innerHTML = told.html;
  document.title = told.title;
  over = told.over;
  gone.hidden = true;
};
source.onerror = () => {
  gone.hidden = over;
  if (over) source.close();
};
