'use strict';
// Draws a report from the JSON in #data: {made, version, runs: [...], sweep, attachments}; launch/report/run_report.cpp
// and launch/commands/report_command.cpp write it. Every text comes to the page as textContent, so none of it is markup.
(() => {
  // Objects without a prototype: names of metrics, keys and tensors are the users', and may be 'constructor'.
  const table = entries => {
    const out = Object.create(null);
    for (const [key, value] of entries) out[key] = value;
    return out;
  };
  const data = JSON.parse(document.getElementById('data').textContent,
    (key, value) => value !== null && typeof value === 'object' && !Array.isArray(value) ? table(Object.entries(value)) : value);
  const main = document.getElementById('main');
  const svgSpace = 'http://www.w3.org/2000/svg';

  // --- Small tools ---
  const make = (tag, attributes = {}, ...children) => {
    const e = document.createElement(tag);
    for (const [key, value] of Object.entries(attributes))
      if (key === 'class') e.className = value;
      else if (key.startsWith('on')) e.addEventListener(key.slice(2), value);
      else if (value === true) e.setAttribute(key, '');
      else if (value !== false && value != null) e.setAttribute(key, value);
    e.append(...children.filter(c => c != null).map(c => typeof c === 'number' ? String(c) : c));
    return e;
  };
  const draw = (tag, attributes = {}, text) => {
    const e = document.createElementNS(svgSpace, tag);
    for (const [key, value] of Object.entries(attributes)) e.setAttribute(key, value);
    if (text != null) e.textContent = text;
    return e;
  };
  const short = v => {
    if (v == null || Number.isNaN(v)) return 'not finite';
    const a = Math.abs(v);
    if (a >= 1e15 || (a > 0 && a < 1e-4)) return v.toExponential(3);
    for (const [unit, size] of [['T', 1e12], ['G', 1e9], ['M', 1e6], ['k', 1e4]])
      if (a >= size) return Number((v / (unit === 'k' ? 1e3 : size)).toPrecision(4)) + unit;
    return String(Number(v.toPrecision(4)));
  };
  const seconds = s => s < 120 ? Number(s.toPrecision(3)) + ' s' : s < 7200 ? (s / 60).toFixed(1) + ' min' : (s / 3600).toFixed(1) + ' h';
  const bytes = b => {
    let unit = 0;
    for (; b >= 1024 && unit < 4; ++unit) b /= 1024;
    return Number(b.toPrecision(3)) + ' ' + ['B', 'KiB', 'MiB', 'GiB', 'TiB'][unit];
  };
  const date = s => s > 0 ? new Date(s * 1000).toISOString().replace('T', ' ').slice(0, 19) + ' UTC' : '';
  const colors = ['#1f6feb', '#d1242f', '#1a7f37', '#9a6700', '#8250df', '#bf3989', '#0a7ea4', '#bc4c00', '#57606a', '#4d7c0f'];
  const colorOf = i => i < colors.length ? colors[i] : `hsl(${(i * 137.5) % 360} 60% 50%)`;
  // What cannot be drawn does not keep the rest from it.
  const attempt = draw_it => {
    try {
      draw_it();
    } catch (e) {
      main.append(make('p', {class: 'bad'}, `A part of this page cannot be shown: ${e.message}`));
    }
  };
  const section = title => {
    const s = make('section', {}, make('h2', {}, title));
    main.append(s);
    return s;
  };
  const table = (heads, rows, numbers = []) => {
    const t = make('table');
    t.append(make('thead', {}, make('tr', {}, ...heads.map((h, i) => make('th', {scope: 'col', class: numbers.includes(i) ? 'number' : ''}, h)))));
    t.append(make('tbody', {}, ...rows.map(row => make('tr', {}, ...row.map((cell, i) =>
      make('td', {class: numbers.includes(i) ? 'number' : 'text'}, cell ?? ''))))));
    return make('div', {class: 'scroll'}, t);
  };

  // --- The runs' curves ---
  // Members of about.json and histograms that have the shape that is drawn; others are left out.
  const isList = Array.isArray, isObject = o => o !== null && typeof o === 'object' && !isList(o), isCount = n => Number.isFinite(n);
  const isName = s => typeof s === 'string' && s.length < 1000;
  const shapes = {
    memory: m => isObject(m) && Object.values(m).every(isCount),
    peak: p => isObject(p) && isCount(p.peak) && isList(p.shares) && p.shares.every(s => isObject(s) && isCount(s.bytes) && isName(s.use) && isName(s.whom)),
    confusion: c => isObject(c) && isList(c.counts) && c.counts.length > 0 && c.counts.every(row => isList(row) && row.length > 0 && row.every(isCount)),
    module_flops: f => isObject(f) && Object.values(f).every(isCount),
    modules: l => isList(l) && l.every(m => isObject(m) && isName(m.name) && isList(m.shape) && m.shape.every(isCount)),
  };
  const soundAbout = (run, problems) => {
    const about = {...table(Object.entries(isObject(run.about) ? run.about : {})), modules: Number.isInteger(run.model) ? data.models[run.model] : []};
    for (const [key, fits] of Object.entries(shapes)) {
      if (about[key] == null || fits(about[key])) continue;
      problems.push(`about.json: ${key} is not what lockstep writes; it is left out`);
      delete about[key];
    }
    return about;
  };
  const isCounts = l => isList(l) && l.every(c => isList(c) && c.length === 2 && Number.isInteger(c[0]) && Math.abs(c[0]) < 513 && isCount(c[1]));
  const soundHistograms = l => (isList(l) ? l : []).filter(h => isObject(h) && isCount(h.step)).map(h => table(Object.entries(h).filter(([k, v]) => k === 'step' || isCounts(v))));
  const runs = data.runs.map((run, index) => {
    const curves = table([]);
    for (const [name, c] of Object.entries(run.curves || {})) {
      let step = 0;
      curves[name] = {n: c.n, median: c.m ?? NaN, step: c.s.map(d => step += d), value: c.v.map(v => v == null ? NaN : v)};
    }
    const problems = [...(run.problems || [])];
    return {...run, index, color: colorOf(index), shown: true, curves, problems, about: soundAbout(run, problems), histograms: soundHistograms(run.histograms), config: run.config || table([])};
  });
  const names = new Map();  // several runs may have one name
  for (const r of runs) names.set(r.name, (names.get(r.name) || 0) + 1);
  for (const r of runs) r.label = names.get(r.name) > 1 ? r.dir : r.name;

  // A value of a curve at a step, between its points.
  const at = (curve, step) => {
    if (!curve || curve.step.length === 0) return NaN;
    let low = 0, high = curve.step.length - 1;
    if (step <= curve.step[0]) return curve.value[0];
    if (step >= curve.step[high]) return curve.value[high];
    while (high - low > 1) {
      const middle = (low + high) >> 1;
      if (curve.step[middle] <= step) low = middle; else high = middle;
    }
    const part = (step - curve.step[low]) / Math.max(1, curve.step[high] - curve.step[low]);
    return curve.value[low] + part * (curve.value[high] - curve.value[low]);
  };
  const batchOf = r => r.about.batch || Number(r.config['batch.global']) || 0;
  const begun = r => {
    const first = (r.goodput || {}).first;
    return first > 0 ? first : NaN;
  };
  const axes = {
    step: {title: 'step', of: (r, s) => s},
    epoch: {title: 'epoch', of: (r, s) => s * batchOf(r) / r.about.samples, has: r => r.about.samples > 0 && batchOf(r) > 0},
    samples: {title: 'samples', of: (r, s) => s * batchOf(r), has: r => batchOf(r) > 0},
    tokens: {title: 'tokens', of: (r, s) => s * batchOf(r) * r.about.units_per_sample, has: r => r.about.unit === 'tokens' && batchOf(r) > 0},
    time: {title: 'time', of: (r, s) => at(r.curves.time, s), has: r => !!r.curves.time, text: seconds},
  };
  const view = {x: 'step', logX: false, logY: false, smooth: 0, filter: '', from: null, to: null};
  const charts = [];
  // A chart is drawn once it comes near the window: there may be hundreds.
  const watcher = new IntersectionObserver(entries => {
    for (const e of entries) {
      const c = e.target.chart;
      c.seen = e.isIntersecting;
      if (c.seen && c.stale) c.draw();
    }
  }, {rootMargin: '200px'});
  let pending = false;
  const redraw = () => {
    if (pending) return;
    pending = true;
    requestAnimationFrame(() => {
      pending = false;
      for (const c of charts) c.stale = true, c.seen && c.draw();
    });
  };

  const median = values => {
    const v = values.filter(Number.isFinite).sort((a, b) => a - b);
    return v.length ? v[v.length >> 1] : NaN;
  };
  const lastOf = (r, name) => {
    const c = r.curves[name];
    return c && c.value.length ? c.value[c.value.length - 1] : NaN;
  };

  // --- Head ---
  document.getElementById('subtitle').textContent =
    `${runs.length} ${runs.length === 1 ? 'run' : 'runs'}, made ${date(data.made)} by lockstep ${data.version}`;
  const root = document.documentElement;
  if (matchMedia('(prefers-color-scheme: dark)').matches) root.classList.add('dark');
  document.getElementById('theme').addEventListener('click', () => { root.classList.toggle('dark'); redraw(); strips.forEach(f => f()); });
  const strips = [];
  if (runs.length === 1) document.title = runs[0].label + ' - Lockstep report';

  // --- Runs ---
  attempt(() => {
    const s = section(runs.length === 1 ? 'Run' : 'Runs');
    const rate = r => Object.keys(r.curves).find(k => k.endsWith('_per_s'));
    s.append(table(['', 'run', 'state', 'step', 'loss', 'validation', 'best validation', 'step time', 'rate', 'parameters', 'ranks'],
      runs.map(r => {
        const best = (r.curves.val_loss || {value: []}).value.filter(Number.isFinite);
        const box = make('input', {type: 'checkbox', checked: true, 'aria-label': 'show ' + r.label,
          onchange: e => { r.shown = e.target.checked; redraw(); }});
        const swatch = make('span', {class: 'swatch'});
        swatch.style.background = r.color;
        const k = rate(r);
        return [make('span', {}, box, ' ', swatch), make('span', {title: r.dir}, r.label),
          make('span', {class: r.state === 'failed' ? 'bad' : ''}, r.state),
          `${r.steps || 0}${r.total ? ' of ' + r.total : ''}`, short(lastOf(r, 'loss')),
          best.length ? short(lastOf(r, 'val_loss')) : '', best.length ? short(Math.min(...best)) : '',
          r.curves.step_ms ? short(r.curves.step_ms.median) + ' ms' : '',
          k ? short(r.curves[k].median) + ' ' + k.slice(0, -6) + '/s' : '',
          r.about.parameters ? short(r.about.parameters) : '', r.about.ranks || ''];
      }), [3, 4, 5, 6, 7, 8, 9, 10]));
    const said = [];
    for (const r of runs) {
      if (r.failure) said.push([r.label, make('span', {class: 'bad'}, `failed with exit code ${r.failure_code}: ${r.failure}`)]);
      if (r.straggler != null) said.push([r.label, make('span', {class: 'warn'}, `rank ${r.straggler} computes ${r.straggler_times} times as long as the others: they wait for it`)]);
      if (r.skipped > 0) said.push([r.label, make('span', {class: 'warn'}, `${r.skipped} steps changed nothing, because their gradient was not finite`)]);
      for (const f of r.findings || []) said.push([r.label, make('span', {class: 'warn'}, f)]);
      for (const p of r.problems || []) said.push([r.label, p]);
    }
    if (said.length) s.append(make('h3', {}, 'What stands out'), table(['run', ''], said));
  });

  // --- Charts ---
  const all = [];
  for (const r of runs) for (const name of Object.keys(r.curves)) if (!all.includes(name) && name !== 'time') all.push(name);
  const isMain = n => n === 'loss' || n.startsWith('loss/') || n.startsWith('val_') || n === 'lr' || n.startsWith('grad_norm') || n.endsWith('_per_s');
  const groupOf = n => isMain(n) ? 0 : /^(step|data|forward|backward|comm|optimizer)_ms$|^validation_s$|^goodput$|^checkpoint|^tflops$|^mfu$/.test(n) ? 1 :
    /_mb$/.test(n) ? 2 : n.startsWith('watch/') ? 3 : n.startsWith('wait_ms/') ? 4 : 5;
  const order = ['loss', 'val_loss', 'lr', 'grad_norm'];
  const rank = n => { const i = order.indexOf(n); return i < 0 ? order.length : i; };
  const logBox = make('input', {type: 'checkbox', onchange: e => { view.logY = e.target.checked; redraw(); }});
  attempt(() => {
    const s = section('Curves');
    const pick = make('select', {onchange: e => { view.x = e.target.value; view.from = view.to = null; redraw(); }},
      ...Object.entries(axes).filter(([, a]) => !a.has || runs.some(a.has)).map(([k, a]) => make('option', {value: k}, a.title)));
    const smooth = make('input', {type: 'range', min: 0, max: 0.99, step: 0.01, value: 0, 'aria-label': 'smoothing',
      oninput: e => { view.smooth = Number(e.target.value); redraw(); }});
    s.append(make('div', {class: 'controls'},
      make('label', {}, 'by ', pick),
      make('label', {}, make('input', {type: 'checkbox', onchange: e => { view.logX = e.target.checked; view.from = view.to = null; redraw(); }}), 'log x'),
      make('label', {}, logBox, 'log y'),
      make('label', {}, 'smoothing ', smooth),
      make('label', {}, 'metrics ', make('input', {type: 'search', size: 12, placeholder: 'filter',
        oninput: e => { view.filter = e.target.value; arrange(); }})),
      make('button', {type: 'button', onclick: () => { view.from = view.to = null; redraw(); }}, 'Whole range')));
    s.append(make('p', {class: 'note'}, 'Drag across a chart to zoom all; double-click for the whole range. By keyboard: Tab to a chart, arrows move the cursor, + and - zoom, 0 shows all.'));
    const titles = ['', 'Time of a step', 'Memory', 'Watched values', 'Waits for buckets of other ranks', 'Others'];
    const arrange = () => {
      for (const c of charts) c.box.hidden = !c.name.toLowerCase().includes(view.filter.toLowerCase());
    };
    for (let g = 0; g < titles.length; ++g) {
      const mine = all.filter(n => groupOf(n) === g).sort((a, b) => rank(a) - rank(b));
      if (!mine.length) continue;
      const grid = make('div', {class: 'charts'});
      if (g === 0) s.append(grid);
      else s.append(make('details', {open: g < 3}, make('summary', {}, titles[g]), grid));
      for (const name of mine) grid.append(chart(name));
    }
  });

  function chart(name) {
    const box = make('div', {class: 'chart'}), svg = draw('svg', {tabindex: 0, role: 'img'});
    const tip = make('div', {class: 'tip', hidden: true});
    const summary = runs.map(r => Number.isFinite(lastOf(r, name)) ? `${r.label}: last ${short(lastOf(r, name))}` : '').filter(Boolean).slice(0, 10).join('; ');
    svg.setAttribute('aria-label', `${name} - ${summary}`);
    box.append(make('h3', {}, name), svg, tip);
    const c = {name, box, seen: false, stale: true};
    charts.push(c);
    const left = 52, right = 10, top = 10, bottom = 24;
    let width = 400, height = 230, low = 0, high = 1, min = 0, max = 1, lines = [], cursor = null, dragged = null;
    const fx = v => view.logX ? Math.log10(v) : v, fy = v => view.logY ? Math.log10(v) : v;
    const px = x => left + (fx(x) - fx(low)) / (fx(high) - fx(low) || 1) * (width - left - right);
    const py = y => height - bottom - (fy(y) - fy(min)) / (fy(max) - fy(min) || 1) * (height - top - bottom);
    const xOf = p => {
      const f = fx(low) + (p - left) / (width - left - right) * (fx(high) - fx(low));
      return Math.min(high, Math.max(low, view.logX ? 10 ** f : f));
    };
    const ticks = (a, b, log, count) => {
      const out = [];
      if (log) {
        const from = Math.floor(Math.log10(a)), to = Math.ceil(Math.log10(b));
        const steps = to - from <= 2 ? [1, 2, 5] : [1], every = Math.max(1, Math.ceil((to - from) / count));
        for (let e = from; e <= to; e += every) for (const m of steps) if (m * 10 ** e >= a && m * 10 ** e <= b) out.push(m * 10 ** e);
        if (out.length > 1) return out;
        out.length = 0;
      }
      const raw = (b - a) / count, base = 10 ** Math.floor(Math.log10(raw || 1));
      const step = [1, 2, 5, 10].map(m => m * base).find(m => m >= raw) || base;
      for (let v = Math.ceil(a / step) * step; v <= b + step * 1e-9 && out.length < 20; v += step) if (!log || v > 0) out.push(Math.abs(v) < step * 1e-9 ? 0 : v);
      return out;
    };
    // An average that forgets: of each value the part 1 - smoothing counts, from the first one on without a bias.
    const smoothed = values => {
      let sum = 0, weight = 0;
      return values.map(v => {
        if (!Number.isFinite(v)) return v;
        sum = view.smooth * sum + (1 - view.smooth) * v;
        weight = view.smooth * weight + (1 - view.smooth);
        return sum / weight;
      });
    };
    const path = (xs, ys) => {
      let d = '', pen = false;
      for (let i = 0; i < xs.length; ++i) {
        const ok = Number.isFinite(xs[i]) && Number.isFinite(ys[i]) && (!view.logY || ys[i] > 0) && (!view.logX || xs[i] > 0);
        if (ok) d += (pen ? 'L' : 'M') + px(xs[i]).toFixed(1) + ' ' + py(ys[i]).toFixed(1);
        pen = ok;
      }
      return d;
    };
    c.draw = () => {
      c.stale = false;
      const axis = axes[view.x];
      width = svg.clientWidth || 400;
      height = svg.clientHeight || 230;
      svg.setAttribute('viewBox', `0 0 ${width} ${height}`);
      lines = runs.filter(r => r.shown && r.curves[name] && (!axis.has || axis.has(r))).map(r => {
        const curve = r.curves[name], x = curve.step.map(s => axis.of(r, s));
        return {r, x, y: curve.value, step: curve.step, smooth: view.smooth > 0 ? smoothed(curve.value) : null};
      });
      let from = Infinity, to = -Infinity;
      for (const l of lines) for (const v of l.x) if (Number.isFinite(v) && (!view.logX || v > 0)) from = Math.min(from, v), to = Math.max(to, v);
      low = view.from ?? (Number.isFinite(from) ? from : 0);
      high = view.to ?? (Number.isFinite(to) ? to : 1);
      if (view.logX && !(low > 0)) low = high > 0 ? Math.min(from, high / 10) : 1;
      if (view.logX && !(low > 0)) low = high / 10;
      if (!(high > low)) high = view.logX ? low * 10 : low + 1;
      min = Infinity, max = -Infinity;
      for (const l of lines)
        for (let i = 0; i < l.x.length; ++i)
          if (l.x[i] >= low && l.x[i] <= high && Number.isFinite(l.y[i]) && (!view.logY || l.y[i] > 0)) min = Math.min(min, l.y[i]), max = Math.max(max, l.y[i]);
      if (!Number.isFinite(min)) min = view.logY ? 0.1 : 0, max = 1;
      if (view.logY) { if (max <= min) max = min * 10; }
      else {
        const room = (max - min) * 0.05 || Math.abs(max) * 0.05 || 1;
        if (!(min >= 0 && min < room)) min -= room; else min = Math.min(min, 0);
        max += room;
      }
      svg.replaceChildren();
      for (const v of ticks(min, max, view.logY, 5)) {
        svg.append(draw('line', {class: 'grid', x1: left, x2: width - right, y1: py(v), y2: py(v)}));
        svg.append(draw('text', {x: left - 5, y: py(v) + 4, 'text-anchor': 'end'}, short(v)));
      }
      for (const v of ticks(low, high, view.logX, Math.max(2, Math.floor(width / 110)))) {
        svg.append(draw('line', {class: 'grid', x1: px(v), x2: px(v), y1: top, y2: height - bottom}));
        svg.append(draw('text', {x: px(v), y: height - 8, 'text-anchor': 'middle'}, axis.text ? axis.text(v) : short(v)));
      }
      const inside = draw('svg', {x: left, y: 0, width: Math.max(1, width - left - right), height, viewBox: `${left} 0 ${Math.max(1, width - left - right)} ${height}`});
      for (const l of lines) {
        inside.append(draw('path', {d: path(l.x, l.y), fill: 'none', stroke: l.r.color, 'stroke-width': l.smooth ? 1 : 1.5, opacity: l.smooth ? 0.3 : 1}));
        if (l.smooth) inside.append(draw('path', {d: path(l.x, l.smooth), fill: 'none', stroke: l.r.color, 'stroke-width': 1.8}));
        if (l.x.length === 1 || l.y.filter(Number.isFinite).length < 60)
          for (let i = 0; i < l.x.length; ++i)
            if (Number.isFinite(l.y[i]) && (!view.logY || l.y[i] > 0) && (!view.logX || l.x[i] > 0))
              inside.append(draw('circle', {cx: px(l.x[i]), cy: py(l.y[i]), r: 2, fill: l.r.color}));
        for (let i = 0; i < l.x.length; ++i)  // steps whose value was not finite, at the lower edge
          if (Number.isNaN(l.y[i])) inside.append(draw('path', {d: `M${px(l.x[i]).toFixed(1)} ${height - bottom}l-3 -6h6z`, fill: l.r.color}));
      }
      svg.append(inside);
      c.line = draw('line', {class: 'cursor', y1: top, y2: height - bottom, visibility: 'hidden'});
      c.range = draw('rect', {class: 'zoom', y: top, height: height - top - bottom, visibility: 'hidden'});
      svg.append(c.line, c.range);
      if (cursor != null) point(cursor);
    };
    // Shows the values nearest to x.
    function point(x) {
      cursor = Math.min(high, Math.max(low, x));
      const p = px(cursor);
      c.line.setAttribute('x1', p);
      c.line.setAttribute('x2', p);
      c.line.setAttribute('visibility', 'visible');
      tip.replaceChildren(make('div', {}, `${axes[view.x].title} ${axes[view.x].text ? axes[view.x].text(cursor) : short(cursor)}`));
      for (const l of lines.slice(0, 24)) {
        let near = -1;
        for (let i = 0; i < l.x.length; ++i) if (near < 0 || Math.abs(l.x[i] - cursor) < Math.abs(l.x[near] - cursor)) near = i;
        if (near < 0) continue;
        const swatch = make('span', {class: 'swatch'});
        swatch.style.background = l.r.color;
        tip.append(make('div', {}, swatch, ` ${l.r.label}: ${short(l.y[near])}${l.smooth ? ` (smoothed ${short(l.smooth[near])})` : ''}, step ${l.step[near]}`));
      }
      tip.hidden = false;
      if (p > width / 2) { tip.style.left = ''; tip.style.right = (width - p + 12) + 'px'; }
      else { tip.style.right = ''; tip.style.left = (p + 12) + 'px'; }
    }
    const hide = () => {
      cursor = null;
      tip.hidden = true;
      if (c.line) c.line.setAttribute('visibility', 'hidden');
    };
    const zoom = (from, to) => { if (to > from) { view.from = from; view.to = to; redraw(); } };
    const where = e => e.clientX - svg.getBoundingClientRect().left;
    svg.addEventListener('pointermove', e => {
      if (!lines.length) return;
      point(xOf(where(e)));
      if (dragged == null) return;
      const a = Math.min(dragged, where(e)), b = Math.max(dragged, where(e));
      c.range.setAttribute('x', a);
      c.range.setAttribute('width', b - a);
      c.range.setAttribute('visibility', 'visible');
    });
    svg.addEventListener('pointerdown', e => { if (e.pointerType === 'mouse' && e.button === 0) { dragged = where(e); svg.setPointerCapture(e.pointerId); } });
    svg.addEventListener('pointerup', e => {
      if (dragged == null) return;
      const a = Math.min(dragged, where(e)), b = Math.max(dragged, where(e));
      dragged = null;
      c.range.setAttribute('visibility', 'hidden');
      if (b - a > 6) zoom(xOf(a), xOf(b));
    });
    svg.addEventListener('pointerleave', hide);
    svg.addEventListener('blur', hide);
    svg.addEventListener('dblclick', () => { view.from = view.to = null; redraw(); });
    svg.addEventListener('keydown', e => {
      const span = high - low, x = cursor ?? low + span / 2, tenth = span / (e.shiftKey ? 10 : 60);
      if (e.key === 'ArrowLeft') point(x - tenth);
      else if (e.key === 'ArrowRight') point(x + tenth);
      else if (e.key === 'Home') point(low);
      else if (e.key === 'End') point(high);
      else if (e.key === '+' || e.key === '=') zoom(x - span / 4, x + span / 4);
      else if (e.key === '-') zoom(Math.max(view.logX ? 1e-9 : -Infinity, x - span), x + span);
      else if (e.key === '0' || e.key === 'Escape') { view.from = view.to = null; redraw(); }
      else return;
      e.preventDefault();
    });
    box.chart = c;
    watcher.observe(box);
    return box;
  }

  // --- A bar of parts ---
  const useNames = ['activations', 'parameters', 'gradients', 'moments', 'gathered', 'batches', 'scratch', 'in_host'];
  const partColors = {...Object.fromEntries(useNames.map((n, i) => [n, colorOf(i)])), data: '#9a6700', forward: '#1f6feb', backward: '#8250df', 'waits for ranks': '#d1242f', optimizer: '#1a7f37', other: '#8b949e'};
  const bar = (parts, text) => {
    const sum = parts.reduce((s, [, v]) => s + v, 0) || 1;
    const b = make('div', {class: 'bar', role: 'img', 'aria-label': parts.map(([n, v]) => `${n} ${text(v)}`).join(', ')});
    parts.forEach(([n, v], i) => {
      const span = make('span', {title: `${n}: ${text(v)}, ${(100 * v / sum).toFixed(1)}%`});
      span.style.width = 100 * v / sum + '%';
      span.style.background = partColors[n] || colorOf(i);
      b.append(span);
    });
    const legend = make('div', {class: 'legend'}, ...parts.filter(([, v]) => v > 0).map(([n, v]) => {
      const swatch = make('span', {class: 'swatch'});
      swatch.style.background = partColors[n] || colorOf(parts.findIndex(p => p[0] === n));
      return make('span', {}, swatch, ` ${n} ${text(v)} (${(100 * v / sum).toFixed(0)}%)`);
    }));
    return make('div', {}, b, legend);
  };

  // --- Time and memory by category ---
  attempt(() => {
    const timed = runs.filter(r => r.curves.step_ms);
    if (timed.length) {
      const s = section('Where a step\'s time goes');
      s.append(make('p', {class: 'note'}, 'Medians of the steps, on rank 0. "waits for ranks": communication that nothing hid.'));
      s.append(table(['run', ''], timed.map(r => {
        const of = k => (r.curves[k] && r.curves[k].median) || 0;
        const parts = [['data', of('data_ms')], ['forward', of('forward_ms')], ['backward', of('backward_ms')], ['waits for ranks', of('comm_ms')], ['optimizer', of('optimizer_ms')]];
        parts.push(['other', Math.max(0, of('step_ms') - parts.reduce((a, [, v]) => a + v, 0))]);
        return [r.label, bar(parts, v => short(v) + ' ms')];
      })));
    }
    const held = runs.filter(r => r.about.memory);
    if (held.length) {
      const s = section('What memory holds');
      s.append(make('p', {class: 'note'}, 'The peak of each use on rank 0; together they may be more than the peak of all, since they need not come at one time.'));
      s.append(table(['run', 'peak of all', ''], held.map(r => {
        const parts = Object.entries(r.about.memory).filter(([k, v]) => k !== 'peak' && v > 0).sort((a, b) => b[1] - a[1]);
        return [r.label, bytes(r.about.memory.peak), bar(parts, bytes)];
      }), [1]));
      for (const r of held) if (r.about.peak && r.about.peak.peak > 0) s.append(flames(r));
    }
    const good = runs.filter(r => (r.goodput || {}).wall > 0);
    if (good.length) {
      const s = section('Goodput and events');
      s.append(make('p', {class: 'note'}, 'What the time since the first attempt became: steps that count, and all else.'));
      s.append(table(['run', 'attempts', 'wall time', 'goodput', ''], good.map(r => {
        const g = r.goodput;
        return [r.label, g.attempts, seconds(g.wall), (100 * g.steps / g.wall).toFixed(1) + '%',
          bar(['steps', 'start', 'data', 'validation', 'saving', 'repeated', 'down', 'other'].map(k => [k === 'down' ? 'between attempts' : k, Math.max(0, g[k])]), seconds)];
      }), [1, 2, 3]));
      for (const r of good) s.append(timeline(r));
    }
  });

  // What was held at the peak of memory: uses, and within each the modules as a tree, a row a level. A click or Enter
  // makes one part the whole width, on the first row what is around it.
  function flames(r) {
    const peak = r.about.peak;
    const root = {name: 'all', full: 'all', bytes: 0, parts: new Map()};
    for (const share of peak.shares || []) {
      const use = String(share.use), whom = String(share.whom || '');
      // The name of a bucket, which has spaces, is one part.
      const path = [use, ...(whom.includes(' ') ? [whom] : whom.split('.').filter(p => p))];
      let at = root;
      at.bytes += share.bytes;
      path.forEach((name, depth) => {
        if (!at.parts.has(name)) at.parts.set(name, {name, full: depth ? path.slice(1, depth + 1).join('.') : name, use, bytes: 0, parts: new Map(), above: at});
        at = at.parts.get(name);
        at.bytes += share.bytes;
      });
    }
    const box = make('div', {class: 'flames', role: 'group', 'aria-label': `memory of ${r.label} at its peak, by use and module`});
    const show = (top, focus) => {
      const rows = [];
      const place = (node, left, depth) => {
        (rows[depth] = rows[depth] || []).push([node, left]);
        let x = left;
        for (const part of [...node.parts.values()].sort((a, b) => b.bytes - a.bytes)) {
          if (part.bytes / top.bytes > 0.002) place(part, x, depth + 1);
          x += part.bytes / top.bytes;
        }
      };
      place(top, 0, 0);
      box.replaceChildren(...rows.map(row => make('div', {class: 'row'}, ...row.map(([node, left]) => {
        const label = `${node.use && node.name !== node.use ? node.use + ' of ' : ''}${node.full}: ${bytes(node.bytes)}, ${(100 * node.bytes / root.bytes).toFixed(1)}%`;
        const b = make('button', {type: 'button', title: label, 'aria-label': label}, node.name);
        b.style.left = 100 * left + '%';
        b.style.width = 100 * node.bytes / top.bytes + '%';
        b.style.background = partColors[node.use] || 'var(--faint)';
        b.addEventListener('click', () => show(node === top && node.above ? node.above : node, true));
        return b;
      }))));
      if (focus) box.querySelector('button').focus();
    };
    show(root);
    const where = [peak.op && `in the ${peak.backward ? 'backward' : 'forward'} pass`, peak.whom && `of ${peak.whom}`, peak.op && `(${peak.op})`].filter(p => p).join(' ');
    return make('div', {}, make('h3', {}, r.label), make('p', {class: 'note'}, `At the peak of all, ${bytes(peak.peak)}${where ? ', ' + where : ''}. A click makes a part the whole width; another on it goes back.`), box);
  }

  // Attempts, checkpoints, the failure and warnings on the time axis.
  function timeline(r) {
    const first = begun(r), last = first + r.goodput.wall, width = 1000, px = t => 10 + (t - first) / Math.max(1e-9, last - first) * (width - 20);
    const svg = draw('svg', {viewBox: `0 0 ${width} 74`, width: '100%', role: 'img', 'aria-label': `events of ${r.label}`});
    svg.append(draw('line', {x1: 10, x2: width - 10, y1: 40, y2: 40, stroke: 'currentColor', opacity: 0.4}));
    const mark = (t, y, d, color, text) => {
      if (!(t > 0)) return;
      const p = draw('path', {d: `M${px(Math.min(last, Math.max(first, t))).toFixed(1)} ${y}${d}`, fill: color, stroke: color});
      p.append(draw('title', {}, text));
      svg.append(p);
    };
    for (const a of r.attempts || []) mark(a.begun, 30, 'v20', colorOf(0), `attempt from step ${a.step} on ${a.ranks} ranks, ${date(a.begun)}`);
    for (const k of r.checkpoints || []) mark(k.time, 46, 'l-4 8h8z', colorOf(2), `checkpoint after step ${k.step}, ${date(k.time)}`);
    for (const w of r.warnings || []) mark(w.time, 34, 'l-4 -8h8z', w.level === 'error' ? colorOf(1) : colorOf(3), `${w.at} ${w.text}`);
    if (r.failure) mark(r.failure_time || last, 40, 'm-5 -5l10 10m0 -10l-10 10', colorOf(1), `failed: ${r.failure}`);
    svg.append(draw('text', {x: 10, y: 70}, date(first)), draw('text', {x: width - 10, y: 70, 'text-anchor': 'end'}, '+ ' + seconds(last - first)));
    const out = make('div', {}, make('h3', {}, r.label), svg,
      make('p', {class: 'note'}, `${(r.attempts || []).length} attempts (lines), ${(r.checkpoints || []).length} checkpoints (green), ${(r.warnings || []).length} warnings and errors (above the line)`));
    if ((r.warnings || []).length)
      out.append(make('details', {}, make('summary', {}, 'Warnings and errors of the log'), table(['when', 'what'], r.warnings.map(w => [w.at, make('span', {class: w.level === 'error' ? 'bad' : ''}, w.text)]))));
    if ((r.checkpoints || []).length)
      out.append(make('details', {}, make('summary', {}, 'Checkpoints'), table(['step', 'written', 'path'], r.checkpoints.map(k => [k.step, date(k.time), k.path]), [0])));
    return out;
  }

  // --- Ranks ---
  attempt(() => {
    const with_ranks = runs.filter(r => r.ranks || (r.about.ranks > 1));
    if (with_ranks.length) section('Ranks').append(...with_ranks.map(ranksOf));
  });
  function ranksOf(r) {
    const out = make('div', {}, make('h3', {}, r.label));
    if (r.ranks) {
      const columns = r.ranks.mean, most = Math.max(...columns.map(c => c.length)), cell = Math.max(3, Math.min(22, Math.floor(260 / most)));
      const canvas = make('canvas', {class: 'strip', width: columns.length, height: most, role: 'img',
        'aria-label': `time that each of ${most} ranks computed, over the steps` + (r.straggler != null ? `; rank ${r.straggler} is the slowest` : '')});
      canvas.style.height = cell * most + 'px';
      canvas.style.imageRendering = 'pixelated';
      const paint = () => {
        const c = canvas.getContext('2d');
        columns.forEach((column, x) => {
          const usual = median(column);
          column.forEach((ms, y) => {
            // Pale: as the others, within a twentieth; red: longer; blue: shorter.
            let over = usual > 0 ? Math.max(-0.5, Math.min(1, ms / usual - 1)) : 0;
            if (Math.abs(over) < 0.05) over = 0;
            c.fillStyle = over >= 0 ? `hsl(${45 - 45 * over} ${60 + 30 * over}% ${root.classList.contains('dark') ? 28 + 27 * over : 92 - 42 * over}%)` : `hsl(210 60% ${root.classList.contains('dark') ? 28 : 85}%)`;
            c.fillRect(x, y, 1, 1);
          });
        });
      };
      paint();
      strips.push(paint);
      const say = make('p', {class: 'note'}, `Rows: ranks 0 to ${most - 1}. Columns: steps ${r.ranks.s[0]} to ${r.steps}. Red: computes longer than the median rank of that time. ` +
        (r.straggler != null ? `Rank ${r.straggler} stands out: ${r.straggler_times} times.` : 'None stands out.'));
      const usual = say.textContent;
      canvas.addEventListener('pointermove', e => {
        const b = canvas.getBoundingClientRect(), x = Math.floor((e.clientX - b.left) / b.width * columns.length), y = Math.floor((e.clientY - b.top) / b.height * most);
        const column = columns[Math.min(columns.length - 1, Math.max(0, x))];
        if (column && column[y] != null) say.textContent = `Rank ${y}, from step ${r.ranks.s[Math.max(0, Math.min(columns.length - 1, x))]}: ${short(column[y])} ms; median rank ${short(median(column))} ms`;
      });
      canvas.addEventListener('pointerleave', () => { say.textContent = usual; });
      out.append(canvas, say);
    }
    const a = r.about;
    if (a.ranks > 1) {
      const group = a.group || a.ranks, machines = a.machines || [];
      const box = new Map();
      for (let i = 0; i < a.ranks; ++i) {
        const m = machines[i] ?? 0;
        if (!box.has(m)) box.set(m, []);
        box.get(m).push(i);
      }
      const cellOf = i => {
        const c = make('span', {class: 'cell'}, String(i));
        c.style.background = a.level === 'none' ? colors[8] : colorOf(i % group);
        c.title = a.level === 'none' ? `rank ${i}: holds everything` : `rank ${i}: slice ${i % group} of ${group}, replica ${Math.floor(i / group)}`;
        return c;
      };
      const what = {none: 'each holds everything', optimizer: 'each holds a slice of masters and moments', gradients: 'each holds a slice of masters, moments and gradients',
        parameters: 'each holds a slice of everything'}[a.level] || '';
      out.append(make('p', {}, `${a.ranks} ranks over ${a.backend}, level ${a.level}: ${what}` +
        (a.level !== 'none' ? `; ${group} ranks share one copy of the state. Ranks of one colour hold the same slice.` : '.')));
      out.append(make('div', {class: 'ranks'}, ...[...box.values()].map((list, i) => make('div', {class: 'machine'},
        make('div', {class: 'note'}, `machine ${i}`), ...list.slice(0, 512).map(cellOf)))));
    }
    return out;
  }

  // --- Configurations ---
  attempt(() => {
    const keys = [];
    for (const r of runs) for (const k of Object.keys(r.config)) if (!keys.includes(k)) keys.push(k);
    if (runs.length > 1) {
      const differ = keys.filter(k => new Set(runs.map(r => r.config[k] ?? '')).size > 1 && k !== 'run.dir');
      const s = section('What differs between the configurations');
      if (!differ.length) s.append(make('p', {}, 'Nothing but run.dir.'));
      else s.append(table(['key', ...runs.map(r => r.label)], differ.map(k => [k, ...runs.map(r => r.config[k] ?? '-')])));
    }
    const s = section(runs.length > 1 ? 'Configurations' : 'Configuration');
    for (const r of runs)
      s.append(make('details', {}, make('summary', {}, r.label), table(['key', 'value'], Object.entries(r.config))));
  });

  // --- Sweep ---
  if (data.sweep) {
    const w = data.sweep, s = section(`Sweep: ${w.points.length} points`);
    s.append(parallel(w));
    s.append(table(['', 'point', ...w.keys, ...w.measures, 'steps', 'exit code'], w.points.map(p => {
      const run = runs.find(r => r.dir === p.dir), swatch = run ? make('span', {class: 'swatch'}) : '';
      if (run) swatch.style.background = run.color;
      return [swatch, p.name, ...w.keys.map(k => p.values[k] ?? ''), ...w.measures.map(m => p.measures[m] == null ? '' : short(p.measures[m])), p.steps, p.code ?? 'did not end'];
    }), w.measures.map((m, i) => 2 + w.keys.length + i)));
  }
  // One line a point through an axis for each key and measure; the better a point, the darker.
  function parallel(w) {
    const columns = [...w.keys.map(k => ({name: k, of: p => p.values[k]})), ...w.measures.map(m => ({name: m, of: p => p.measures[m]}))];
    const width = Math.max(320, columns.length * 150), height = 260, top = 24, foot = 14;
    const svg = draw('svg', {viewBox: `0 0 ${width} ${height}`, role: 'img', 'aria-label': 'parallel coordinates of the sweep; the table below has the same values'});
    svg.style.minWidth = width + 'px';
    columns.forEach((c, i) => {
      const values = w.points.map(c.of), numbers = values.map(Number);
      c.numeric = values.every((v, j) => v == null || v === '' || Number.isFinite(numbers[j]));
      const there = numbers.filter((v, j) => values[j] != null && values[j] !== '' && Number.isFinite(v));
      c.low = Math.min(...there), c.high = Math.max(...there);
      c.log = c.numeric && c.low > 0 && c.high / c.low > 30;
      c.kinds = [...new Set(values.filter(v => v != null && v !== ''))];
      c.x = 60 + i * (width - 120) / Math.max(1, columns.length - 1);
      const part = v => {
        if (!c.numeric) return c.kinds.length > 1 ? c.kinds.indexOf(v) / (c.kinds.length - 1) : 0.5;
        const f = c.log ? Math.log : x => x;
        return c.high > c.low ? (f(Number(v)) - f(c.low)) / (f(c.high) - f(c.low)) : 0.5;
      };
      c.y = v => height - foot - part(v) * (height - top - foot);
      svg.append(draw('line', {x1: c.x, x2: c.x, y1: top, y2: height - foot, stroke: 'currentColor', opacity: 0.4}));
      svg.append(draw('text', {x: c.x, y: 14, 'text-anchor': 'middle'}, c.name));
      const marks = c.numeric ? (c.high > c.low ? [c.low, c.high] : there.length ? [c.low] : []) : c.kinds.slice(0, 12);
      for (const m of marks) svg.append(draw('text', {x: c.x + 4, y: c.y(m) + 4}, typeof m === 'number' ? short(m) : m));
    });
    w.points.forEach((p, i) => {
      let d = '';
      for (const c of columns) {
        const v = c.of(p);
        if (v == null || v === '') continue;
        d += (d ? 'L' : 'M') + c.x.toFixed(1) + ' ' + c.y(v).toFixed(1);
      }
      const line = draw('path', {d, fill: 'none', stroke: 'var(--accent)', 'stroke-width': i === 0 ? 2.5 : 1.3, opacity: 1 - 0.8 * i / Math.max(1, w.points.length - 1)});
      line.append(draw('title', {}, `${p.name}: ${w.keys.map(k => `${k}=${p.values[k]}`).join(', ')}`));
      svg.append(line);
    });
    return make('div', {class: 'scroll'}, svg);
  }

  // --- Histograms of watched values ---
  attempt(() => {
    const watched = runs.filter(r => (r.histograms || []).length);
    if (watched.length) {
      const s = section('Histograms of watched values');
      s.append(make('p', {class: 'note'}, 'How many values lie in each bucket, two buckets for each power of two: a row a step, the oldest at the top; 0 is the line.'));
      for (const r of watched) {
        const names = [...new Set(r.histograms.flatMap(h => Object.keys(h)))].filter(n => n !== 'step').sort(), list = make('div', {class: 'charts'});
        const d = make('details', {}, make('summary', {}, `${r.label}: ${names.length} tensors`), list);
        d.addEventListener('toggle', () => {
          if (list.childElementCount === 0) for (const name of names) list.append(ridges(name, r.histograms.filter(h => h[name] && h[name].length)));
        });
        d.open = watched.length === 1;
        s.append(d);
      }
    }
  });
  // The lower edge of a bucket (core/io/histogram.h).
  function edge(bucket) {
    if (bucket < 0) return -edge(-bucket);
    const words = new Uint32Array([bucket << 22]);
    return new Float32Array(words.buffer)[0];
  }
  function ridges(name, lines) {
    const width = 420, height = 26 + 12 * lines.length + 18, all = lines.flatMap(h => h[name].map(([b]) => b)).filter(b => b !== 0);
    // Of either sign the buckets between the least and the largest in use, and one for 0.
    const span = sign => { const used = all.filter(b => sign * b > 0); return used.length ? [Math.min(...used), Math.max(...used)] : null; };
    const below = span(-1), above = span(1), left = below ? below[1] - below[0] + 1 : 0, right = above ? above[1] - above[0] + 1 : 0;
    const step = (width - 20) / (left + 1 + right), px = b => 10 + step * (b === 0 ? left : b < 0 ? b - below[0] : left + 1 + b - above[0]);
    const svg = draw('svg', {viewBox: `0 0 ${width} ${height}`, width: '100%', role: 'img', 'aria-label': `histograms of ${name}, steps ${lines.map(h => h.step).join(', ')}`});
    svg.append(draw('line', {x1: px(0) + step / 2, x2: px(0) + step / 2, y1: 4, y2: height - 16, class: 'grid'}));
    lines.forEach((h, i) => {
      const base = 26 + 12 * (i + 1), most = Math.max(...h[name].map(([, n]) => n)), total = h[name].reduce((s, [, n]) => s + n, 0);
      let d = `M10 ${base}`, at = -Infinity;
      for (const [b, n] of [...h[name]].sort((p, q) => p[0] - q[0])) {
        if (b > at + 1) d += `H${px(b).toFixed(1)}V${base}`;
        d += `V${(base - 22 * n / most).toFixed(1)}h${step.toFixed(2)}V${base}`;
        at = b;
      }
      const p = draw('path', {d: d + `H${width - 10}`, fill: 'var(--accent)', 'fill-opacity': 0.25, stroke: 'var(--accent)'});
      p.append(draw('title', {}, `step ${h.step}: ${short(total)} values`));
      svg.append(p);
    });
    const mark = (b, text, anchor) => svg.append(draw('text', {x: px(b) + (anchor === 'end' ? step : 0), y: height - 4, 'text-anchor': anchor}, text));
    if (below) mark(below[0], short(edge(below[0])), 'start');
    if (above) mark(above[1], short(edge(above[1] + 1)), 'end');
    return make('div', {class: 'ridges'}, make('h3', {}, name), svg);
  }

  // --- Models ---
  attempt(() => {
    const seen = new Map();
    for (const r of runs) {
      if (!(r.about.modules || []).length) continue;
      const key = JSON.stringify(r.about.modules);
      if (seen.has(key)) seen.get(key).push(r); else seen.set(key, [r]);
    }
    if (seen.size) {
      const s = section(seen.size === 1 ? 'Model' : 'Models');
      for (const list of seen.values()) {
        const a = list[0].about;
        s.append(make('p', {}, `${list.map(r => r.label).join(', ')}: ${a.model}, task ${a.task}, ${short(a.parameters)} parameters` +
          (a.flops > 0 ? `, ${short(a.flops)} floating-point operations in the products of a step` : '') +
          (Object.keys(a.module_flops || {}).length ? '. FLOPs of modules: floating-point operations of a sample\'s forward pass.' : '')));
        s.append(tree(a));
      }
    }
  });
  function tree(a) {
    const top = {children: new Map(), leaves: [], count: 0, flops: 0}, child = (node, part) => {
      if (!node.children.has(part)) node.children.set(part, {children: new Map(), leaves: [], count: 0, flops: 0});
      return node.children.get(part);
    };
    for (const m of a.modules) {
      const parts = m.name.split('.'), size = m.shape.reduce((x, y) => x * y, 1);
      let node = top;
      node.count += size;
      for (const part of parts.slice(0, -1)) {
        node = child(node, part);
        node.count += size;
      }
      node.leaves.push({name: parts[parts.length - 1], shape: m.shape, size, frozen: m.frozen});
    }
    for (const [name, flops] of Object.entries(a.module_flops || {})) {
      let node = top;
      node.flops += flops;
      for (const part of name.split('.').filter(p => p)) {
        node = child(node, part);
        node.flops += flops;
      }
    }
    const show = (name, node, depth) => {
      const d = make('details', {open: depth === 0}, make('summary', {}, `${name}: ${short(node.count)} parameters (${(100 * node.count / (top.count || 1)).toFixed(1)}%)` +
        (node.flops > 0 ? `, ${short(node.flops)} FLOPs (${(100 * node.flops / top.flops).toFixed(1)}%)` : '')));
      for (const [part, n] of node.children) d.append(show(part, n, depth + 1));
      for (const l of node.leaves) d.append(make('div', {class: 'leaf'}, `${l.name} [${l.shape.join(' x ')}] ${short(l.size)}${l.frozen ? ', frozen' : ''}`));
      return d;
    };
    return show(a.model || 'model', top, 0);
  }

  // --- Confusion ---
  attempt(() => {
    const counted = runs.filter(r => r.about.confusion && (r.about.confusion.counts || []).length);
    if (counted.length) {
      const s = section('Confusion matrices');
      s.append(make('p', {class: 'note'}, 'Of the last validation: a row for each label, a column for each predicted class.'));
      for (const r of counted)
        s.append(make('h3', {}, `${r.label}, step ${r.about.confusion.step}`), matrix([['label', ...r.about.confusion.counts[0].map((_, i) => String(i))], ...r.about.confusion.counts.map((row, i) => [String(i), ...row.map(String)])]));
    }
  });

  // --- Samples and other files ---
  if ((data.attachments || []).length) {
    const s = section('Samples');
    for (const f of data.attachments) {
      s.append(make('h3', {}, f.name));
      if (f.image) s.append(make('img', {src: f.image, alt: f.name}));
      else if (f.rows) s.append(matrix(f.rows));
      else s.append(make('pre', {tabindex: 0}, f.text));
    }
  }
  // A table of a CSV file; cells with numbers are coloured, as of a confusion matrix.
  function matrix(rows) {
    const body = rows.slice(1), numbers = body.flat().map(Number).filter(Number.isFinite), most = numbers.reduce((a, b) => Math.max(a, b), 0);
    const t = make('table', {class: 'matrix'}, make('thead', {}, make('tr', {}, ...rows[0].map(h => make('th', {scope: 'col'}, h)))));
    t.append(make('tbody', {}, ...body.map(row => make('tr', {}, ...row.map((cell, i) => {
      const td = make(i === 0 ? 'th' : 'td', i === 0 ? {scope: 'row'} : {}, cell), v = Number(cell);
      if (i > 0 && cell !== '' && Number.isFinite(v) && most > 0) td.style.background = `color-mix(in srgb, var(--accent) ${Math.max(0, Math.min(100, 70 * v / most))}%, transparent)`;
      return td;
    })))));
    return make('div', {class: 'scroll'}, t);
  }

  addEventListener('resize', redraw);
})();
