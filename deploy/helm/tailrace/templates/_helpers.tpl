{{- define "tailrace.name" -}}
{{- if contains .Chart.Name .Release.Name }}{{ .Release.Name | trunc 40 | trimSuffix "-" }}{{ else }}{{ printf "%s-%s" .Release.Name .Chart.Name | trunc 40 | trimSuffix "-" }}{{ end }}
{{- end }}

{{- define "tailrace.labels" -}}
helm.sh/chart: {{ printf "%s-%s" .Chart.Name .Chart.Version }}
app.kubernetes.io/version: {{ .Chart.AppVersion | quote }}
app.kubernetes.io/managed-by: {{ .Release.Service }}
{{ include "tailrace.selector" . }}
{{- end }}

{{- define "tailrace.selector" -}}
app.kubernetes.io/name: {{ .Chart.Name }}
app.kubernetes.io/instance: {{ .Release.Name }}
{{- end }}

{{/* The image of a program: (dict "root" $ "program" "agent"). */}}
{{- define "tailrace.image" -}}
{{- $images := .root.Values.images -}}
{{- with $images.registry }}{{ trimSuffix "/" . }}/{{ end }}{{ get $images .program }}:{{ $images.tag | default .root.Chart.AppVersion }}
{{- end }}

{{- define "tailrace.containerSecurity" -}}
allowPrivilegeEscalation: false
readOnlyRootFilesystem: true
capabilities: {drop: [ALL]}
{{- end }}

{{/* Of a pod: (dict "user" 999 "group" 999). */}}
{{- define "tailrace.podSecurity" -}}
runAsNonRoot: true
runAsUser: {{ .user }}
runAsGroup: {{ .group }}
fsGroup: {{ .group }}
fsGroupChangePolicy: OnRootMismatch
seccompProfile: {type: RuntimeDefault}
{{- end }}

{{/* What every pod begins with: (dict "root" $ "of" VALUES OF THE PROGRAM). */}}
{{- define "tailrace.podHead" -}}
enableServiceLinks: false
{{- with .root.Values.images.pullSecrets }}
imagePullSecrets: {{ toYaml . | nindent 2 }}
{{- end }}
securityContext:
  {{- include "tailrace.podSecurity" .of | nindent 2 }}
{{- end }}

{{/* The machines that a program's pods may run on, of its values. */}}
{{- define "tailrace.placement" -}}
{{- with .nodeSelector }}
nodeSelector: {{ toYaml . | nindent 2 }}
{{- end }}
{{- with .tolerations }}
tolerations: {{ toYaml . | nindent 2 }}
{{- end }}
{{- end }}

{{- define "tailrace.mounts" -}}
- {name: tailrace-settings, mountPath: /etc/tailrace, readOnly: true}
- {name: tailrace-tmp, mountPath: /tmp}
{{- range .Values.secrets }}
- {name: {{ printf "tailrace-secret-%s" .name }}, mountPath: {{ printf "/run/secrets/tailrace/%s" .name }}, readOnly: true}
{{- end }}
{{- end }}

{{/* (dict "root" $ "settings" NAME OF A CONFIGMAP). */}}
{{- define "tailrace.volumes" -}}
- name: tailrace-settings
  configMap: {name: {{ .settings }}}
- name: tailrace-tmp
  emptyDir: {}
{{- range .root.Values.secrets }}
- name: {{ printf "tailrace-secret-%s" .name }}
  secret: {secretName: {{ .secretName }}, defaultMode: 0440}
{{- end }}
{{- end }}

{{- define "tailrace.probes" -}}
startupProbe:
  httpGet: {path: {{ .live }}, port: {{ .port }}{{ with .scheme }}, scheme: {{ . }}{{ end }}}
  periodSeconds: 5
  failureThreshold: 60
livenessProbe:
  httpGet: {path: {{ .live }}, port: {{ .port }}{{ with .scheme }}, scheme: {{ . }}{{ end }}}
  periodSeconds: 15
  timeoutSeconds: 5
  failureThreshold: 4
readinessProbe:
  httpGet: {path: {{ .ready }}, port: {{ .port }}{{ with .scheme }}, scheme: {{ . }}{{ end }}}
  periodSeconds: 10
  timeoutSeconds: 5
{{- end }}

{{/*
The agent's container, for the pod of a Cassandra node: (dict "root" $ "volume" NAME "address" "status.podIP").
A chart of your own that depends on this one may include it in its StatefulSet.
*/}}
{{- define "tailrace.agentContainer" -}}
{{- $agent := .root.Values.agent -}}
name: tailrace-agent
image: {{ include "tailrace.image" (dict "root" .root "program" "agent") }}
imagePullPolicy: {{ .root.Values.images.pullPolicy }}
args: [agent, -c, /etc/tailrace/tailrace.toml]
env:
  # The node beside it, and no other one.
  - name: NODE_ADDRESS
    valueFrom: {fieldRef: {fieldPath: {{ .address }}}}
  - {name: TAILRACE_CLUSTER__CONTACT_POINTS, value: $(NODE_ADDRESS)}
  - {name: TAILRACE_AGENT__CDC_RAW_DIRECTORY, value: {{ $agent.dataPath }}/cdc_raw}
  - {name: TAILRACE_AGENT__COMMITLOG_DIRECTORY, value: {{ $agent.dataPath }}/commitlog}
  # Spooled segments are changes that Kafka lacks: they stay on the node's own volume, whatever becomes of the pod.
  - {name: TAILRACE_AGENT__SPOOL_DIRECTORY, value: {{ $agent.spoolPath }}}
  - {name: TAILRACE_AGENT__HEALTH_ADDRESS, value: "0.0.0.0"}
  - {name: TAILRACE_AGENT__HEALTH_PORT, value: {{ $agent.healthPort | quote }}}
  {{- with $agent.env }}
  {{- toYaml . | nindent 2 }}
  {{- end }}
ports:
  - {name: tailrace, containerPort: {{ $agent.healthPort }}}
{{ include "tailrace.probes" (dict "live" "/health/live" "ready" "/health/ready" "port" $agent.healthPort) }}
lifecycle:
  # Once the node has stopped, this waits until everything that it logged is in Kafka. Else cdc_raw keeps the rest.
  preStop:
    exec: {command: [tailrace, drain, -c, /etc/tailrace/tailrace.toml, --timeout, {{ $agent.drainSeconds | quote }}]}
resources: {{ toYaml $agent.resources | nindent 2 }}
securityContext:
  runAsNonRoot: true
  runAsUser: {{ $agent.user }}
  runAsGroup: {{ $agent.group }}
  {{- include "tailrace.containerSecurity" . | nindent 2 }}
volumeMounts:
  - {name: {{ .volume }}, mountPath: {{ $agent.dataPath }}}
  {{- include "tailrace.mounts" .root | nindent 2 }}
{{- end }}

{{/* What every process on the meta database has: its URL, from a Secret. */}}
{{- define "tailrace.serverEnv" -}}
- {name: TAILRACE_SERVER__URL_FILE, value: /run/secrets/tailrace-server/url/url}
{{- with .Values.server.env }}
{{ toYaml . }}
{{- end }}
{{- end }}

{{- define "tailrace.serverMounts" -}}
{{ include "tailrace.mounts" . }}
- {name: work, mountPath: /var/lib/tailrace}
- {name: server-url, mountPath: /run/secrets/tailrace-server/url, readOnly: true}
{{- end }}

{{- define "tailrace.serverVolumes" -}}
{{ include "tailrace.volumes" . }}
- name: work
  emptyDir: {}
- name: server-url
  secret:
    secretName: {{ required "server.urlSecret: name a Secret with the URL of the meta database in the key url" .root.Values.server.urlSecret }}
    defaultMode: 0440
{{- end }}
