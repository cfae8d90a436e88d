// Linear scales for pictures made of elements: where a figure lies, in percent of a track.

/** A scale from `low` to `high`, with round marks: `{at(value) → "42%", share(value) → 0 to 1, high, ticks: [values]}`. */
export function scale(low, high, marks = 5) {
  const span = high - low || 1;
  const step = roundStep(span / marks);
  const ticks = [];
  for (let tick = Math.ceil(low / step) * step; tick <= high + step * 1e-6; tick += step) ticks.push(Math.abs(tick) < step * 1e-6 ? 0 : tick);
  const share = (value) => Math.min(1, Math.max(0, (value - low) / span));
  return { high, share, at: (value) => `${(share(value) * 100).toFixed(3)}%`, ticks };
}

/** The smallest of 1, 2, 5, 10, … (and their tenths) that is not below `wanted`. */
function roundStep(wanted) {
  const size = 10 ** Math.floor(Math.log10(wanted));
  return [1, 2, 5, 10].map((each) => each * size).find((each) => each >= wanted * 0.999);
}
