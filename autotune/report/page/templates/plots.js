
"use strict";
(() => {
  const specs = JSON.parse(document.getElementById("plots").textContent);
  const dark = window.matchMedia("(prefers-color-scheme: dark)");
  const narrow = window.matchMedia("(max-width: 40rem)");

  // "@name" under a key that ends in "color" is a colour of the style sheet.
  const filled = (value, key, style) => {
    if (Array.isArray(value)) return value.map((one) => filled(one, key, style));
    if (value !== null && typeof value === "object") {
      return Object.fromEntries(Object.entries(value).map(([name, one]) => [name, filled(one, name, style)]));
    }
    const named = typeof value === "string" && value.startsWith("@") && key.endsWith("color");
    return named ? style.getPropertyValue(`--${value.slice(1)}`).trim() : value;
  };

  // A legend takes its room from the plot, so that the plot grows with it.
  const fitted = (layout, data, width) => {
    const entries = data.filter((trace) => trace.showlegend !== false).length;
    const rows = Math.ceil(entries / (width < 560 ? 1 : 3));
    layout.font = { ...layout.font, family: getComputedStyle(document.body).fontFamily };
    layout.height = layout.height || 360 + 20 * rows;
    layout.width = width;
    if (narrow.matches) layout.font.size = 12;
    return layout;
  };

  const draw = () => {
    const style = getComputedStyle(document.documentElement);
    for (const place of document.querySelectorAll("[data-plot]")) {
      const spec = filled(specs[place.dataset.plot], "", style);
      const config = { displayModeBar: false, displaylogo: false, showTips: false, doubleClick: false };
      Plotly.react(place, spec.data, fitted(spec.layout, spec.data, place.clientWidth), config);
    }
  };

  let waiting = 0;
  const redraw = () => {
    cancelAnimationFrame(waiting);
    waiting = requestAnimationFrame(draw);
  };
  dark.addEventListener("change", redraw);
  window.addEventListener("resize", redraw);
  draw();
})();
