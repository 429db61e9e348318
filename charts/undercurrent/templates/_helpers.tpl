{{- define "undercurrent.selector" -}}
app.kubernetes.io/name: {{ .Chart.Name }}
app.kubernetes.io/instance: {{ .Release.Name }}
{{- end }}

{{- define "undercurrent.labels" -}}
{{ include "undercurrent.selector" . }}
app.kubernetes.io/version: {{ .Chart.AppVersion | quote }}
app.kubernetes.io/managed-by: {{ .Release.Service }}
helm.sh/chart: {{ .Chart.Name }}-{{ .Chart.Version }}
{{- end }}

{{- /* Without SETUID and SETGID the worker stays root, without capabilities. */ -}}
{{- define "undercurrent.config" -}}
{{- $separation := ternary (dict "separation" (dict "root_worker" true)) dict .Values.restricted -}}
{{ mergeOverwrite (deepCopy .Values.config) $separation | toYaml }}
{{- end }}

{{- define "undercurrent.name" -}}
{{ if contains .Chart.Name .Release.Name }}{{ .Release.Name }}{{ else }}{{ .Release.Name }}-{{ .Chart.Name }}{{ end }}
{{- end }}
