// Draws every canvas with `data-chart` (msgplatform/doors/admin/chart.py) with the theme's Chart.js: again
// when the theme changes between light and dark, and when a page says that it has new numbers.
"use strict";

(() => {
  // For light and for dark pages: each at least 4.5 : 1 against the card.
  const TONES = {
    accepted: ["#4f46e5", "#a5b4fc"],
    good: ["#15803d", "#4ade80"],
    lost: ["#dc2626", "#f87171"],
    bad: ["#b45309", "#fbbf24"],
    plain: ["#4f46e5", "#a5b4fc"],
    limit: ["#b45309", "#fbbf24"],
  };
  const INK = ["#4b5563", "#d1d5db"];
  const GRID = ["#e5e7eb", "#374151"];
  const PAPER = ["#ffffff", "#111827"];

  const language = document.documentElement.lang || undefined;
  const number = new Intl.NumberFormat(language, { maximumFractionDigits: 2 });
  const percent = new Intl.NumberFormat(language, { style: "percent", maximumFractionDigits: 1 });

  function duration(seconds, units) {
    const [size, text] = units.find(([size]) => Math.abs(seconds) >= size) || units.at(-1);
    return text.replace("%d", number.format(Math.round(seconds / size * 10) / 10));
  }

  function written(value, { unit, units }) {
    if (unit === "share") return percent.format(value);
    if (unit === "seconds") return value ? duration(value, units) : "0";
    if (unit === "milliseconds") return units.at(-1)[1].replace("%d", number.format(value));
    return number.format(value);
  }

  function dataset(line, shade, last) {
    const colour = TONES[line.tone][shade];
    // What is not counted yet is drawn with dashes.
    const dashed = (context) => (context.p1DataIndex === last ? [4, 4] : undefined);
    const shared = { label: line.title, data: line.values, backgroundColor: colour };
    if (line.bars) {
      // A single one among thousands must be seen.
      return { ...shared, type: "bar", minBarLength: 4, maxBarThickness: 12, order: 2 };
    }
    return {
      ...shared, type: "line", borderColor: colour, borderWidth: 2, tension: 0,
      order: line.tone === "accepted" ? 1 : 0,
      fill: line.area ? "origin" : false, backgroundColor: line.area ? `${colour}33` : colour,
      borderDash: line.tone === "limit" && !line.area ? [6, 4] : [], segment: { borderDash: dashed },
      // A point alone has no line.
      pointRadius: (at) => (isAlone(line.values, at.dataIndex) ? 2.5 : 0), pointHoverRadius: 4,
    };
  }

  function isAlone(values, at) {
    return values[at] !== null && (values[at - 1] ?? null) === null && (values[at + 1] ?? null) === null;
  }

  function options(chart, shade) {
    const ticks = { color: INK[shade] };
    const top = { maxTicksLimit: 5, callback: (value) => written(value, chart) };
    if (chart.unit === "count") top.precision = 0;
    return {
      animation: false, responsive: true, maintainAspectRatio: false,
      interaction: { mode: "index", intersect: false },
      scales: {
        x: {
          grid: { display: false }, border: { color: GRID[shade] },
          ticks: { ...ticks, autoSkip: true, autoSkipPadding: 24, maxRotation: 0 },
        },
        y: {
          beginAtZero: true, suggestedMax: chart.leastTop || (chart.unit === "count" ? 1 : undefined),
          grid: { color: GRID[shade] }, border: { display: false }, ticks: { ...ticks, ...top },
        },
      },
      plugins: {
        legend: {
          display: chart.lines.length > 1, position: "bottom", align: "start",
          labels: { color: INK[shade], boxHeight: 8, boxWidth: 16, padding: 14 },
        },
        tooltip: {
          backgroundColor: PAPER[1 - shade], titleColor: PAPER[shade], bodyColor: PAPER[shade],
          callbacks: {
            label: (at) => ` ${at.dataset.label}: ${written(at.parsed.y, chart)}`,
          },
        },
      },
    };
  }

  function draw(canvas) {
    const chart = JSON.parse(canvas.dataset.chart);
    const shade = document.documentElement.classList.contains("dark") ? 1 : 0;
    const last = chart.lastIsOpen ? chart.times.length - 1 : -1;
    const data = {
      labels: chart.times,
      datasets: chart.lines.map((line) => dataset(line, shade, last)),
    };
    const drawn = Chart.getChart(canvas);
    if (!drawn) {
      new Chart(canvas, { type: "line", data, options: options(chart, shade) });
      return;
    }
    // A line that was switched off in the legend stays so.
    data.datasets.forEach((one, place) => { one.hidden = !drawn.isDatasetVisible(place); });
    drawn.data = data;
    drawn.options = options(chart, shade);
    drawn.update("none");
  }

  function drawAll() {
    Chart.defaults.font.family = getComputedStyle(document.body).fontFamily;
    document.querySelectorAll("canvas[data-chart]").forEach(draw);
  }

  document.addEventListener("DOMContentLoaded", () => {
    drawAll();
    new MutationObserver(drawAll).observe(document.documentElement, { attributeFilter: ["class"] });
  });
  document.addEventListener("console:renewed", drawAll);
})();
