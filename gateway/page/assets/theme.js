// The theme that was chosen here before, set ahead of the first paint. Without a choice the system's holds.
try {
  const chosen = localStorage.getItem("holeshot.theme");
  if (chosen === "light" || chosen === "dark") document.documentElement.dataset.theme = chosen;
} catch {
  // storage may be closed to us
}
