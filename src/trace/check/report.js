// The checker's page: the links of findings lead to their operators in the picture.

const viewer = new Viewer(data);
viewer.start("findings");
document.querySelectorAll("a[data-finding]").forEach((link) => link.addEventListener("click", (event) => {
  const [index] = data.findings[Number(link.dataset.finding)].boxes;
  if (index === undefined) return;
  event.preventDefault();
  viewer.select(index, true);
  element("picture").scrollIntoView({ block: "center" });
}));
