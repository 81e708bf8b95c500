{{/* Name of everything that the chart makes, but for what is named after what it is for. */}}
{{- define "rcbox.name" -}}
{{- if eq .Release.Name "rcbox" }}rcbox-operator{{ else }}{{ printf "%s-rcbox-operator" .Release.Name | trunc 50 | trimSuffix "-" }}{{ end }}
{{- end }}

{{/* Labels by which the operator's pods are selected. Stores' network policies let pods of this name in. */}}
{{- define "rcbox.selectorLabels" -}}
app.kubernetes.io/name: rcbox-operator
app.kubernetes.io/instance: {{ .Release.Name | quote }}
{{- end }}

{{- define "rcbox.labels" -}}
{{ include "rcbox.selectorLabels" . }}
app.kubernetes.io/version: {{ .Chart.AppVersion | quote }}
app.kubernetes.io/managed-by: {{ .Release.Service }}
helm.sh/chart: {{ .Chart.Name }}-{{ .Chart.Version }}
{{- end }}

{{- define "rcbox.image" -}}
{{ .Values.image.repository }}:{{ .Values.image.tag | default .Chart.AppVersion | toString }}
{{- end }}

{{- define "rcbox.storeImage" -}}
{{ .Values.storeImage.repository }}:{{ .Values.storeImage.tag | default .Chart.AppVersion | toString }}
{{- end }}

{{- define "rcbox.podSecurityContext" -}}
runAsNonRoot: true
runAsUser: 65532
runAsGroup: 65532
seccompProfile:
  type: RuntimeDefault
{{- end }}

{{- define "rcbox.containerSecurityContext" -}}
allowPrivilegeEscalation: false
readOnlyRootFilesystem: true
runAsNonRoot: true
capabilities:
  drop: [ALL]
{{- end }}

{{/* The box controller, beside the operator. */}}
{{- define "rcbox.boxName" -}}
{{- if eq .Release.Name "rcbox" }}rcbox-box{{ else }}{{ printf "%s-rcbox-box" .Release.Name | trunc 50 | trimSuffix "-" }}{{ end }}
{{- end }}

{{- define "rcbox.boxSelectorLabels" -}}
app.kubernetes.io/name: rcbox-box
app.kubernetes.io/instance: {{ .Release.Name | quote }}
{{- end }}

{{- define "rcbox.boxLabels" -}}
{{ include "rcbox.boxSelectorLabels" . }}
app.kubernetes.io/version: {{ .Chart.AppVersion | quote }}
app.kubernetes.io/managed-by: {{ .Release.Service }}
helm.sh/chart: {{ .Chart.Name }}-{{ .Chart.Version }}
{{- end }}
