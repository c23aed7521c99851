// The daemon's health, and what this machine gives and lacks.

import { get, useLoaded } from "../api";
import { ago } from "../text";
import type { Finding, Health } from "../types";
import { Problem } from "../ui";

const LEVELS = { good: ["good", "good"], note: ["note", "warn"], bad: ["bad", "bad"] } as const;

export function DoctorView() {
  const health = useLoaded((abort) => get<Health>("/healthz", {}, abort), 5000, []);
  const doctor = useLoaded((abort) => get<{ findings: Finding[] }>("/v1/doctor", {}, abort), 60000, []);
  const it = health.value;
  return (
    <>
      <section aria-labelledby="health-title">
        <h1 id="health-title">Doctor</h1>
        <Problem text={health.error} />
        {it && (
          <dl class="details">
            <div><dt>Daemon</dt><dd>version {it.version}, pid {it.pid}, started {ago(it.started_at)}</dd></div>
            <div><dt>Home</dt><dd><code>{it.home}</code></dd></div>
            <div><dt>Containment</dt><dd>{it.containment}</dd></div>
            <div><dt>TCP</dt><dd>{it.tcp ?? "off"}</dd></div>
            <div><dt>Live processes</dt><dd>{it.live}</dd></div>
          </dl>
        )}
        {it?.troubles.map((trouble) => <Problem key={trouble} text={trouble} />)}
      </section>
      <section aria-labelledby="findings-title">
        <h2 id="findings-title">This machine</h2>
        <Problem text={doctor.error} />
        <ul class="findings">
          {doctor.value?.findings.map((finding) => (
            <li key={finding.topic + finding.text} data-row>
              <span class={`badge ${LEVELS[finding.level][1]}`}>{LEVELS[finding.level][0]}</span>
              <div><strong>{finding.topic}</strong> {finding.text}{finding.remedy && <p class="hint">{finding.remedy}</p>}</div>
            </li>
          ))}
        </ul>
      </section>
    </>
  );
}
