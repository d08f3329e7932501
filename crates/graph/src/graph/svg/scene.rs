use super::layered::{self, Cell, Link, Pin, Placement, Wire};
use crate::graph::{Graph, Node, NodeId, Remarks, Value};
use crate::op::{Fused, Role};
use crate::{Layout, Type};
use std::collections::HashMap;

/// Wires across more ranks than this become notes.
const FAR: usize = 20;
const SHELF_GAP: f64 = 36.0;
pub(super) const CHAR: f64 = 6.05;
pub(super) const LINE: f64 = 13.0;
pub(super) const MARGIN: f64 = 6.0;

/// The kind of a box, which determines its color.
#[derive(Clone, Copy, PartialEq)]
pub(super) enum Kind {
    Input,
    Host,
    Operator,
    Inner,
    Fused,
    Output,
    Port,
}

/// A value written into the boxes that read it.
#[derive(Clone, PartialEq)]
pub(super) enum Note {
    /// A scalar constant, part of the title.
    Scalar(String),
    Parameter(String),
    /// A constant, or a value that is drawn elsewhere.
    Reference(String),
}

pub(super) struct Figure {
    pub kind: Kind,
    pub title: String,
    pub details: Vec<String>,
    pub notes: Vec<Note>,
    pub tooltip: String,
    pub inner: Option<Picture>,
    pub width: f64,
    pub height: f64,
}

#[derive(Default)]
pub(super) struct Picture {
    pub figures: Vec<([f64; 2], Figure)>,
    pub wires: Vec<Wire>,
    pub width: f64,
    pub height: f64,
    /// Where operands enter at the top.
    entries: HashMap<usize, f64>,
    /// Where results leave at the bottom.
    exits: Vec<f64>,
}

/// The surroundings of a body.
#[derive(Default)]
pub(super) struct Frame {
    /// The notes of the operands; operands without a note enter by wire. `None` for a whole graph.
    pub operands: Option<Vec<Option<Note>>>,
    /// The module path of the fused operator.
    path: String,
    /// Remarks on nodes.
    remarks: HashMap<NodeId, String>,
}

impl Frame {
    /// For a whole graph.
    pub(super) fn of_graph(remarks: &Remarks) -> Self {
        Self { remarks: remarks.nodes.clone(), ..Self::default() }
    }
}

/// A drawn node or output, and its operands: by note or by wire.
struct Sketch<'a> {
    node: Option<(NodeId, &'a Node)>,
    output: &'a str,
    reads: Vec<(Value, Option<Note>)>,
}

pub(super) fn picture(graph: &Graph, frame: &Frame) -> Picture {
    let mut builder = Builder::new(graph, frame);
    builder.sketch();
    builder.build()
}

struct Builder<'a> {
    graph: &'a Graph,
    frame: &'a Frame,
    numbers: HashMap<NodeId, usize>,
    drawn: HashMap<NodeId, usize>,
    sketches: Vec<Sketch<'a>>,
}

impl<'a> Builder<'a> {
    fn new(graph: &'a Graph, frame: &'a Frame) -> Self {
        Self { graph, frame, numbers: HashMap::new(), drawn: HashMap::new(), sketches: vec![] }
    }

    /// Chooses the values that are drawn and those that become notes.
    fn sketch(&mut self) {
        let order = self.graph.order().unwrap_or_default();
        self.numbers = order.iter().enumerate().map(|(number, &id)| (id, number)).collect();
        for id in order {
            let Some(node) = self.graph.node(id) else { continue };
            if self.source_note(node, "").is_some() {
                continue;
            }
            let reads = self.graph.inputs(id).into_iter().map(|value| (value, self.note(value, node))).collect();
            self.drawn.insert(id, self.sketches.len());
            self.sketches.push(Sketch { node: Some((id, node)), output: "", reads });
        }
        for (name, value) in self.graph.outputs() {
            let note = self.graph.node(value.node).and_then(|node| self.source_note(node, ""));
            self.sketches.push(Sketch { node: None, output: name, reads: vec![(*value, note)] });
        }
    }

    /// The note of a source that is never drawn, for a reader in the module `path`.
    fn source_note(&self, node: &Node, path: &str) -> Option<Note> {
        let op = node.op.as_ref();
        let ty = node.types.first().map(show).unwrap_or_default();
        match op.role() {
            Role::Parameter(parameter) => {
                let name = within(&parameter.name, path);
                Some(Note::Parameter(format!("{} {ty}", shorten_front(name, 32))))
            }
            Role::Constant(constant) => {
                let scalar = constant.tensor.to_f64().first().copied().filter(|_| constant.tensor.len() == 1);
                Some(scalar.map_or_else(|| Note::Reference(format!("constant {ty}")), |v| Note::Scalar(number(v))))
            }
            _ => {
                let operands = self.frame.operands.as_ref()?;
                Fused::operand(op).and_then(|position| operands.get(position).cloned().flatten())
            }
        }
    }

    fn note(&self, value: Value, reader: &Node) -> Option<Note> {
        let producer = self.graph.node(value.node)?;
        let host = |node: &Node| node.types.iter().all(|ty| ty.layout == Layout::Host);
        let across = self.frame.operands.is_none() && host(producer) && !host(reader);
        let reference = || across.then(|| self.reference(value));
        self.source_note(producer, &reader.path).or_else(reference)
    }

    fn reference(&self, value: Value) -> Note {
        let number = self.numbers.get(&value.node).copied().unwrap_or_default();
        let port = if value.port == 0 { String::new() } else { format!(".{}", value.port) };
        Note::Reference(format!("%{number}{port} {}", shorten(&self.graph.name_of(value.node), 36)))
    }

    fn build(&mut self) -> Picture {
        let pins: Vec<Pin> = self.sketches.iter().map(|sketch| self.pin(sketch)).collect();
        let groups = if self.frame.operands.is_some() {
            vec![(0..self.sketches.len()).collect()]
        } else {
            components(self.sketches.len(), &self.links())
        };
        let mut ranks = vec![0; pins.len()];
        for group in &groups {
            let place: HashMap<usize, usize> = group.iter().enumerate().map(|(n, &cell)| (cell, n)).collect();
            let inside = |(from, to)| Some((*place.get(&from)?, *place.get(&to)?));
            let links: Vec<(usize, usize)> = group
                .iter()
                .flat_map(|&cell| self.producers(cell).map(move |from| (from, cell)))
                .filter_map(inside)
                .collect();
            let pins: Vec<Pin> = group.iter().map(|&cell| pins[cell]).collect();
            for (&cell, rank) in group.iter().zip(layered::ranks(&pins, &links)) {
                ranks[cell] = rank;
            }
        }
        self.note_far_values(&ranks);
        self.assemble(&groups, &ranks)
    }

    fn pin(&self, sketch: &Sketch<'_>) -> Pin {
        match (&self.frame.operands, sketch.node) {
            (None, _) => Pin::Free,
            (Some(_), None) => Pin::Last,
            (Some(_), Some((_, node))) if Fused::operand(node.op.as_ref()).is_some() => Pin::First,
            (Some(_), Some(_)) => Pin::Free,
        }
    }

    fn producers(&self, cell: usize) -> impl Iterator<Item = usize> + '_ {
        let wired = self.sketches[cell].reads.iter().filter(|(_, note)| note.is_none());
        wired.filter_map(|(value, _)| self.drawn.get(&value.node).copied())
    }

    fn links(&self) -> Vec<(usize, usize)> {
        (0..self.sketches.len()).flat_map(|cell| self.producers(cell).map(move |from| (from, cell))).collect()
    }

    fn note_far_values(&mut self, ranks: &[usize]) {
        for cell in 0..self.sketches.len() {
            let mut reads = std::mem::take(&mut self.sketches[cell].reads);
            for (value, note) in reads.iter_mut().filter(|(_, note)| note.is_none()) {
                let far = self.drawn.get(&value.node).is_some_and(|&from| ranks[cell] > ranks[from] + FAR);
                *note = (far && self.frame.operands.is_none()).then(|| self.reference(*value));
            }
            self.sketches[cell].reads = reads;
        }
    }

    /// Lays out each group of connected figures, then puts the groups on shelves.
    fn assemble(&self, groups: &[Vec<usize>], ranks: &[usize]) -> Picture {
        let mut figures: Vec<Option<Figure>> = self.sketches.iter().map(|sketch| Some(self.figure(sketch))).collect();
        let placements: Vec<Placement> = groups.iter().map(|group| self.place(group, ranks, &figures)).collect();
        let sizes: Vec<[f64; 2]> = placements.iter().map(|p| [p.width, p.height]).collect();
        let mut picture = Picture::default();
        for ((group, placement), origin) in groups.iter().zip(placements).zip(shelves(&sizes)) {
            let moved = |[x, y]: [f64; 2]| [x + origin[0], y + origin[1]];
            picture.width = picture.width.max(origin[0] + placement.width);
            picture.height = picture.height.max(origin[1] + placement.height);
            for (&cell, corner) in group.iter().zip(&placement.corners) {
                let Some(figure) = figures[cell].take() else { continue };
                let center = corner[0] + figure.width / 2.0;
                match self.sketches[cell].node {
                    Some((_, node)) => {
                        picture.entries.extend(Fused::operand(node.op.as_ref()).map(|operand| (operand, center)));
                    }
                    None => picture.exits.push(center),
                }
                picture.figures.push((moved(*corner), figure));
            }
            picture.wires.extend(placement.wires.into_iter().map(|wire| Wire {
                from: moved(wire.from),
                leave: wire.leave + origin[1],
                enter: wire.enter + origin[1],
                to: moved(wire.to),
                arrow: wire.arrow,
            }));
        }
        picture
    }

    fn place(&self, group: &[usize], ranks: &[usize], figures: &[Option<Figure>]) -> Placement {
        let place: HashMap<usize, usize> = group.iter().enumerate().map(|(n, &cell)| (cell, n)).collect();
        let figure = |cell: usize| figures.get(cell).and_then(Option::as_ref);
        let cells: Vec<Cell> = group
            .iter()
            .filter_map(|&cell| figure(cell))
            .map(|figure| Cell { width: figure.width, height: figure.height, ports: figure.inner.is_some() })
            .collect();
        let mut links = vec![];
        for (to, &cell) in group.iter().enumerate() {
            for (operand, (value, note)) in self.sketches[cell].reads.iter().enumerate() {
                let Some(&from_cell) = self.drawn.get(&value.node) else { continue };
                let Some(&from) = place.get(&from_cell).filter(|_| note.is_none()) else { continue };
                links.push(Link {
                    from,
                    port: value.port,
                    from_dx: figure(from_cell).map_or(0.0, |figure| figure.exit(value.port as usize)),
                    to,
                    to_dx: figure(cell).map_or(0.0, |figure| figure.entry(operand)),
                });
            }
        }
        let ranks: Vec<usize> = group.iter().map(|&cell| ranks[cell]).collect();
        layered::place(&cells, &ranks, &links)
    }

    fn figure(&self, sketch: &Sketch<'_>) -> Figure {
        let mut notes: Vec<Note> = vec![];
        for note in sketch.reads.iter().filter_map(|(_, note)| note.clone()) {
            if matches!(note, Note::Scalar(_)) || !notes.contains(&note) {
                notes.push(note);
            }
        }
        let Some((id, node)) = sketch.node else {
            let kind = if self.frame.operands.is_some() { Kind::Port } else { Kind::Output };
            let source = sketch.reads.first().and_then(|(value, _)| self.graph.ty(*value));
            let title = source.map(|ty| format!("{} : {}", sketch.output, show(ty))).unwrap_or_default();
            return Figure::new(kind, shorten(sketch.output, 48), vec![], notes, title);
        };
        let tooltip = self.tooltip(id, node, sketch);
        if let Role::Fused(fused) = node.op.role() {
            let operands = Some(sketch.reads.iter().map(|(_, note)| note.clone()).collect());
            let inner = picture(&fused.body, &Frame { operands, path: node.path.clone(), ..Frame::default() });
            return Figure::fused(node, inner, tooltip, self.frame.remarks.get(&id));
        }
        if self.pin(sketch) == Pin::First {
            return Figure::new(Kind::Port, String::new(), vec![], vec![], tooltip);
        }
        let details = self.details(node, sketch);
        let (kind, title) = match node.op.role() {
            Role::Input(input) => (Kind::Input, shorten(&input.name, 48)),
            _ if node.types.iter().all(|ty| ty.layout == Layout::Host) => (Kind::Host, self.title(node, sketch)),
            _ if self.frame.operands.is_some() => (Kind::Inner, self.title(node, sketch)),
            _ => (Kind::Operator, self.title(node, sketch)),
        };
        let title = match kind {
            Kind::Input | Kind::Host => {
                format!("%{} {title}", self.numbers.get(&id).copied().unwrap_or_default())
            }
            _ => title,
        };
        Figure::new(kind, title, details, notes, tooltip)
    }

    /// The types, in a body only if they differ from those of the operands, and the module path where it changes.
    fn details(&self, node: &Node, sketch: &Sketch<'_>) -> Vec<String> {
        let first = sketch.reads.iter().find(|(_, note)| note.is_none()).map(|&(value, _)| value);
        let inside = self.frame.operands.is_some();
        let known = first.and_then(|value| self.graph.ty(value)).filter(|_| inside);
        let news = node.types.iter().filter(|ty| known != Some(*ty));
        let producer = first.and_then(|value| self.graph.node(value.node)).filter(|node| !node.path.is_empty());
        let around = producer.map_or(&self.frame.path, |producer| &producer.path);
        let path = Some(&node.path).filter(|path| !path.is_empty() && *path != around);
        news.map(show).chain(path.map(|path| shorten_front(path, 36))).collect()
    }

    /// The name with scalar operands and attributes, `mul(·, 0.5)`, `slice axis 1, start 0, len 64`.
    fn title(&self, node: &Node, sketch: &Sketch<'_>) -> String {
        let scalar = |(_, note): &(Value, Option<Note>)| match note {
            Some(Note::Scalar(value)) => Some(value.clone()),
            _ => None,
        };
        let mut title = node.op.name().to_owned();
        if sketch.reads.iter().any(|read| scalar(read).is_some()) {
            let operands: Vec<String> =
                sketch.reads.iter().map(|read| scalar(read).unwrap_or_else(|| "·".to_owned())).collect();
            title += &format!("({})", operands.join(", "));
        }
        let host = node.types.iter().all(|ty| ty.layout == Layout::Host);
        if let Some(serde_json::Value::Object(attributes)) = Some(node.op.attributes()).filter(|_| !host) {
            let scalars = attributes.iter().filter(|(_, value)| value.is_number() || value.is_boolean());
            let scalars: Vec<String> = scalars.map(|(name, value)| format!("{name} {value}")).collect();
            if !scalars.is_empty() {
                title += &format!(" {}", scalars.join(", "));
            }
        }
        shorten(&title, 48)
    }

    fn tooltip(&self, id: NodeId, node: &Node, sketch: &Sketch<'_>) -> String {
        let number = self.numbers.get(&id).copied().unwrap_or_default();
        let types: Vec<String> = node.types.iter().map(show).collect();
        let notes = sketch.reads.iter().filter_map(|(_, note)| note.as_ref()).map(Note::text);
        let notes: String = notes.map(|note| format!("\n{note}")).collect();
        let attributes = shorten(&self.graph.attributes(id), 400);
        format!("%{number} {}{attributes} : {}\n{}{notes}", node.op.name(), types.join(", "), node.path)
    }
}

impl Note {
    pub(super) fn text(&self) -> &str {
        match self {
            Self::Scalar(text) | Self::Parameter(text) | Self::Reference(text) => text,
        }
    }
}

impl Figure {
    fn new(kind: Kind, title: String, details: Vec<String>, notes: Vec<Note>, tooltip: String) -> Self {
        let notes: Vec<Note> = notes.into_iter().filter(|note| !matches!(note, Note::Scalar(_))).collect();
        let mut figure = Self { kind, title, details, notes, tooltip, inner: None, width: 6.0, height: 6.0 };
        if kind != Kind::Port {
            let lines = 1 + figure.details.len() + figure.notes.len();
            figure.width = figure.text_width() + 2.0 * MARGIN;
            figure.height = lines as f64 * LINE + MARGIN;
        }
        figure
    }

    fn fused(node: &Node, inner: Picture, tooltip: String, remark: Option<&String>) -> Self {
        let mut details: Vec<String> = node.types.iter().map(show).collect();
        details.extend(Some(&node.path).filter(|path| !path.is_empty()).map(|path| shorten_front(path, 30)));
        details.extend(remark.cloned());
        let mut figure = Self::new(Kind::Fused, node.op.name().to_owned(), details, vec![], tooltip);
        figure.width += inner.width + MARGIN;
        figure.height = figure.height.max(inner.height);
        figure.inner = Some(inner);
        figure
    }

    fn text_width(&self) -> f64 {
        let notes = self.notes.iter().map(Note::text);
        let lines = std::iter::once(self.title.as_str()).chain(self.details.iter().map(String::as_str)).chain(notes);
        lines.map(|line| line.chars().count()).max().unwrap_or(0) as f64 * CHAR
    }

    /// The upper left corner of the body; the label is on its left.
    pub(super) fn inset(&self) -> [f64; 2] {
        let corner = |inner: &Picture| [self.width - inner.width - MARGIN, (self.height - inner.height) / 2.0];
        self.inner.as_ref().map_or([0.0; 2], corner)
    }

    /// Where an operand enters, from the center.
    fn entry(&self, operand: usize) -> f64 {
        let x = self.inner.as_ref().and_then(|inner| inner.entries.get(&operand));
        x.map_or(0.0, |x| x + self.inset()[0] - self.width / 2.0)
    }

    /// Where a result leaves, from the center.
    fn exit(&self, port: usize) -> f64 {
        let x = self.inner.as_ref().and_then(|inner| inner.exits.get(port));
        x.map_or(0.0, |x| x + self.inset()[0] - self.width / 2.0)
    }
}

impl Graph {
    /// A readable name of a node.
    pub(super) fn name_of(&self, id: NodeId) -> String {
        let Some(node) = self.node(id) else { return String::new() };
        match node.op.role() {
            Role::Input(input) => input.name.clone(),
            _ => node.op.name().to_owned(),
        }
    }
}

/// Sets of cells that links connect, in the order of their first cells.
fn components(count: usize, links: &[(usize, usize)]) -> Vec<Vec<usize>> {
    let mut root: Vec<usize> = (0..count).collect();
    fn find(root: &mut [usize], mut cell: usize) -> usize {
        while root[cell] != cell {
            root[cell] = root[root[cell]];
            cell = root[cell];
        }
        cell
    }
    for &(from, to) in links {
        let (from, to) = (find(&mut root, from), find(&mut root, to));
        root[from.max(to)] = from.min(to);
    }
    let mut groups: Vec<Vec<usize>> = vec![vec![]; count];
    for cell in 0..count {
        let first = find(&mut root, cell);
        groups[first].push(cell);
    }
    groups.retain(|group| !group.is_empty());
    groups
}

/// Corners of rectangles on shelves, the tallest first.
fn shelves(sizes: &[[f64; 2]]) -> Vec<[f64; 2]> {
    let area: f64 = sizes.iter().map(|[width, height]| (width + SHELF_GAP) * (height + SHELF_GAP)).sum();
    let widest = sizes.iter().map(|size| size[0]).fold(0.0, f64::max);
    let limit = widest.max((area * 1.6).sqrt());
    let mut order: Vec<usize> = (0..sizes.len()).collect();
    order.sort_by(|&a, &b| sizes[b][1].total_cmp(&sizes[a][1]));
    let mut corners = vec![[0.0; 2]; sizes.len()];
    let (mut x, mut y, mut shelf) = (0.0, 0.0, 0.0f64);
    for index in order {
        let [width, height] = sizes[index];
        if x > 0.0 && x + width > limit {
            (x, y, shelf) = (0.0, y + shelf + SHELF_GAP, 0.0);
        }
        corners[index] = [x, y];
        x += width + SHELF_GAP;
        shelf = shelf.max(height);
    }
    corners
}

fn show(ty: &Type) -> String {
    ty.to_string().replace("+-", "-")
}

fn number(value: f64) -> String {
    let size = value.abs();
    if value == value.trunc() && size < 1e6 {
        return value.to_string();
    }
    if !(1e-3..1e6).contains(&size) {
        return format!("{value:.3e}").replace(".000e", "e");
    }
    format!("{value:.4}").trim_end_matches('0').to_owned()
}

/// A name without the modules that it shares with a path.
fn within<'a>(name: &'a str, path: &str) -> &'a str {
    let shared = name.split('.').zip(path.split('.')).take_while(|(a, b)| a == b).map(|(a, _)| a.len() + 1).sum();
    name.get(shared..).filter(|rest| !rest.is_empty()).unwrap_or(name)
}

fn shorten(text: &str, limit: usize) -> String {
    match text.char_indices().nth(limit) {
        Some((end, _)) => format!("{}…", &text[..end]),
        None => text.to_owned(),
    }
}

fn shorten_front(text: &str, limit: usize) -> String {
    let excess = text.chars().count().saturating_sub(limit);
    match text.char_indices().nth(excess) {
        Some((start, _)) if excess > 0 => format!("…{}", &text[start..]),
        _ => text.to_owned(),
    }
}
