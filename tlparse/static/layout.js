// Runs in a worker, behind dagre: boxes and edges go in; where each of them is drawn comes out.

onmessage = ({ data: { ticket, boxes, edges } }) => {
  const plan = new dagre.graphlib.Graph();
  plan.setGraph({ rankdir: "TB", nodesep: 14, ranksep: 26, marginx: 12, marginy: 12 });
  plan.setDefaultEdgeLabel(() => ({}));
  for (const [key, width, height] of boxes) plan.setNode(key, { width, height });
  for (const [from, to] of edges) plan.setEdge(from, to);
  dagre.layout(plan);
  const { width, height } = plan.graph();
  const places = plan.nodes().map((key) => [key, plan.node(key).x, plan.node(key).y]);
  const lines = plan.edges().map((edge) => [edge.v, edge.w, plan.edge(edge).points.map(({ x, y }) => [x, y])]);
  postMessage({ ticket, width, height, places, lines });
};
